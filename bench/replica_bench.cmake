hotbed_executable(replica_bench SRCS replica_bench.cc DEPS hotbed_server hotbed_roofs CLI11::CLI11)
