hotbed_executable(pooled_bench SRCS pooled_bench.cc DEPS hotbed_bench_loops hotbed_tiers hotbed_kernels_cpu hotbed_common CLI11::CLI11)
