hotbed_executable(session_bench SRCS session_bench.cc bench_host.cc DEPS hotbed_host hotbed_common CLI11::CLI11)
