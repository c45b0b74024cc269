hotbed_executable(session_bench SRCS session_bench.cc DEPS hotbed_shard hotbed_common)
