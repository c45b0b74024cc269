hotbed_executable(planner_bench SRCS planner_bench.cc
  DEPS hotbed_planner_plan_by_cost benchmark::benchmark)
