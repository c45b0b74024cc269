hotbed_executable(message_bench SRCS message_bench.cc bench_host.cc DEPS hotbed_server hotbed_host hotbed_proto hotbed_common CLI11::CLI11
                  PRECOMPILED grpc)
