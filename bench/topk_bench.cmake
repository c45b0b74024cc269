hotbed_executable(topk_bench SRCS topk_bench.cc bench_host.cc DEPS hotbed_bench_loops hotbed_server_export hotbed_served_rows hotbed_host hotbed_common CLI11::CLI11)
