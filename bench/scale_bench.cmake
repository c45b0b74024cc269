hotbed_executable(scale_bench SRCS scale_bench.cc DEPS hotbed_coordinator CLI11::CLI11)
