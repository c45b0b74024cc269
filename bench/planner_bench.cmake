hotbed_executable(planner_bench SRCS planner_bench.cc
  DEPS hotbed_planner_cluster benchmark::benchmark)
