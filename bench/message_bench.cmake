hotbed_executable(message_bench SRCS message_bench.cc DEPS hotbed_server hotbed_shard hotbed_proto hotbed_common
                  PRECOMPILED grpc)
