hotbed_executable(session_bench SRCS session_bench.cc DEPS hotbed_host hotbed_common)
