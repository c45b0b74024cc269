hotbed_executable(kernels_bench SRCS kernels_bench.cc
  DEPS hotbed_bench_loops hotbed_kernels_cpu hotbed_common benchmark::benchmark)
