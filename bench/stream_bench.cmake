hotbed_executable(stream_bench SRCS bench_host.cc stream_bench.cc stream_bench_peer.cc DEPS hotbed_server hotbed_host hotbed_roofs CLI11::CLI11)
