hotbed_executable(tiers_bench SRCS tiers_bench.cc DEPS hotbed_bench_loops hotbed_tiers hotbed_kv hotbed_common CLI11::CLI11)
