hotbed_executable(message_bench SRCS message_bench.cc DEPS hotbed_server hotbed_host hotbed_proto hotbed_common
                  PRECOMPILED grpc)
