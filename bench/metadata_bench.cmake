hotbed_executable(metadata_bench SRCS metadata_bench.cc
  DEPS hotbed_console hotbed_coordinator hotbed_metadata hotbed_config CLI11::CLI11)
