hotbed_executable(shards_bench SRCS shards_bench.cc DEPS hotbed_client hotbed_client_local hotbed_proto hotbed_common CLI11::CLI11)
