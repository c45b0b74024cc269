hotbed_executable(optimizers_bench SRCS optimizers_bench.cc
  DEPS hotbed_bench_loops hotbed_kernels_cpu hotbed_client hotbed_common benchmark::benchmark)
