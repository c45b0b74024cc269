// A valid input, and a plan with every field, for the tests of the planner's JSON.
#ifndef HOTBED_TESTS_PLANNER_JSON_JSON_CASES_H_
#define HOTBED_TESTS_PLANNER_JSON_JSON_CASES_H_

#include "planner/model/planner_output.h"

namespace hotbed {

// Every key of an input, but for the current plan.
constexpr char kFullInput[] = R"({
  "tables": [
    {"name": "user", "rows": 1000, "dim": 8, "weight_type": "fp16", "optimizer": "adam",
     "combiner": "mean", "hashed": true, "row_statistics": "slice", "replicas": 2,
     "reads_per_step": 12.5, "zipf": 1.05, "hotness": [[0.1, 0.5], [0.5, 0.9]]},
    {"name": "item", "rows": 20, "dim": 4}
  ],
  "features": [
    {"name": "f", "table": "item", "pooling_factor": 2.0, "weighted": true},
    {"name": "g", "table": "user"}
  ],
  "topology": {
    "servers": [
      {"name": "s0", "host": "h0", "zone": "z0", "device_bytes": 5, "host_bytes": 1000000,
       "spill_bytes": 7, "draining": true, "load": 0.25},
      {"name": "s1", "host_bytes": 2000000}
    ],
    "device": "cuda",
    "bandwidth": {"device": 1.0, "host": 2.0, "device_host": 3.0, "intra_host": 4.0,
                  "inter_host": 5.0, "spill": 6.0}
  },
  "workload": {"batch_size": 64, "trainers": 3},
  "planner": {
    "strategy": "memory_balanced", "column_slice_threshold": 9, "row_slice_threshold": null,
    "data_parallel_threshold": 0, "strict": true, "order": "shuffled",
    "constraints": [{"table": "item", "sharding": ["row_wise", "grid"], "kernels": ["fused"],
                     "servers": ["s1"], "columns_min": 4, "cache_load_factor": 0.2,
                     "batch_sizes": [512], "pooling_factors": [1.5], "num_poolings": [1.0]}],
    "reserve": {"kind": "heuristic", "fraction": 0.2, "dense_bytes": 10},
    "seed": 4, "evaluations_max": 77, "move_bytes_max": 1000
  }
})";

// An input that every strategy has a plan for.
constexpr char kPlainInput[] = R"({
  "tables": [
    {"name": "user", "rows": 1000, "dim": 8, "optimizer": "sgd", "hashed": true, "zipf": 1.05},
    {"name": "item", "rows": 20, "dim": 4, "optimizer": "sgd", "reads_per_step": 5.5},
    {"name": "shop", "rows": 300, "dim": 4, "optimizer": "adam", "hotness": [[0.1, 0.5]]}
  ],
  "topology": {"servers": [{"name": "s0", "host_bytes": 100000000000},
                           {"name": "s1", "host_bytes": 100000000000},
                           {"name": "s2", "host_bytes": 100000000000}]},
  "workload": {"batch_size": 64, "trainers": 3},
  "planner": {"strategy": "memory_balanced", "column_slice_threshold": 999,
              "row_slice_threshold": 8000, "data_parallel_threshold": 80, "seed": 4,
              "evaluations_max": 1000},
  "constants": {"segment_ns": 5, "host_bandwidth": 7, "about": {"segment_ns": "a guess"}},
  "current": {"tables": [{"name": "item", "shards": [
      {"server": "s0", "rows": [0, 10], "columns": [0, 4]},
      {"server": "s9", "rows": [10, 20], "columns": [0, 4]}]}]}
})";

inline PlannerOutput FullPlan() {
  PlannerOutput plan;
  plan.strategy = "fair";
  plan.tables = {{.name = "user",
                  .sharding = Sharding::kRowWise,
                  .ranges = {{0, Role::kPrimary, 0, 10, 0, 4, 40, 160, 200, "fused"},
                             {1, Role::kBackup, 0, 10, 0, 4, 40, 160, 200, ""}},
                  .perf = TablePerf{0.1, 1e-300, 3.27460077428233e-4, 4, 1.0 / 3},
                  .cache_load_factor = 0.3025801181793213},
                 {.name = "\"quoted\" \xc3\xa4\n",
                  .sharding = Sharding::kGrid,
                  .ranges = {},
                  .perf = {},
                  .cache_load_factor = {}}};
  plan.servers = {{.name = "s0",
                   .elements = 40,
                   .bytes = {1, 2, 9223372036854775807ull},
                   .groups = {{4, "sum", {"user"}, {0}}},
                   .perf = TablePerf{1, 2, 3, 4, 5},
                   .row_base = 0,
                   .features = {"f"},
                   .feature_offsets = {0}},
                  {.name = "s1"}};
  plan.outputs = {{"f", "user", 4, 0}};
  plan.cost = {1.5, 1.25, 0.2, "host_bytes of s0"};
  plan.moves = {{"user", 0, 10, 0, 4, "", "s1", 200, "s9 is gone"}};
  plan.cuts = {{2, {3133}}, {3, {}}};
  plan.context_hash = "0123456789abcdef";
  return plan;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_JSON_JSON_CASES_H_
