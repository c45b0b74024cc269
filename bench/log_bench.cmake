hotbed_executable(log_bench SRCS log_bench.cc DEPS hotbed_shard_log CLI11::CLI11)
