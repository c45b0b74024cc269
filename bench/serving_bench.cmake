hotbed_executable(serving_bench SRCS serving_bench.cc DEPS hotbed_client hotbed_serving_client hotbed_leader hotbed_common CLI11::CLI11)
