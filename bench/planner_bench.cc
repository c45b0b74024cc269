// The time of the planner, by tables and servers, without and with a current plan. Instances are
// random with a fixed seed: sizes over four orders of magnitude, half of the tables skewed, a tenth
// of them with a second replica. Also prints shards, bytes moved and the gap to the proven bound.
//
//   planner_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "planner/model/table_bytes.h"
#include "planner/plan_by_cost.h"

namespace hotbed {
namespace {

// `memory`: the share of the bytes of all replicas that fits in host memory (the rest spills).
PlannerInput Instance(uint32_t tables, uint32_t servers, double memory) {
  Random random(20261121);
  PlannerInput input;
  double needed = 0;
  for (uint32_t t = 0; t < tables; ++t) {
    InputTable table;
    table.name = absl::StrCat("table", t);
    table.rows = 1000;
    for (int i = 0; i < 4; ++i) table.rows *= 1 + random.Uniform(10);
    table.dim = 16u << random.Uniform(4);
    if (random.OneIn(10)) table.replicas = 2;
    table.hashed = random.OneIn(4);
    if (random.OneIn(2)) table.zipf = 0.8 + 0.5 * random.Double();
    needed += static_cast<double>(table.rows) * static_cast<double>(RowBytes(table, table.dim)) *
              table.replicas;
    input.tables.push_back(std::move(table));
    input.features.push_back({input.tables.back().name, t, 1 + 20 * random.Double(), false});
  }
  for (uint32_t s = 0; s < servers; ++s) {
    InputServer server;
    server.name = server.host = absl::StrCat("s", s);
    server.zone = absl::StrCat("z", s % 3);
    server.host_bytes = static_cast<uint64_t>(1.3 * needed / servers * memory);
    server.spill_bytes = static_cast<uint64_t>(1.3 * needed / servers * (1 - memory));
    input.topology.servers.push_back(std::move(server));
  }
  input.workload = {4096, 4};
  return input;
}

void Report(benchmark::State& state, const PlannerOutput& plan) {
  double shards = 0;
  for (const PlacedTable& table : plan.tables) shards += static_cast<double>(table.ranges.size());
  double bytes = 0;
  for (const PlannedMove& move : plan.moves) bytes += static_cast<double>(move.bytes);
  state.counters["shards"] = shards;
  state.counters["moves"] = static_cast<double>(plan.moves.size());
  state.counters["moved_GB"] = bytes * 1e-9;
  state.counters["ms_a_step"] = plan.cost.max_server_ms;
  state.counters["gap"] = plan.cost.gap;
}

void PlanAgainAndAgain(benchmark::State& state, const PlannerInput& input) {
  PlannerOutput last;
  for (auto _ : state) {
    PlanResult<PlannerOutput> plan = PlanByCost(input);
    if (!plan.ok()) {
      state.SkipWithError(plan.error().message.c_str());
      return;
    }
    last = std::move(plan.value());
  }
  Report(state, last);
}

void FromNothing(benchmark::State& state) {
  PlanAgainAndAgain(
      state, Instance(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)),
                      static_cast<double>(state.range(2)) / 100));
}

// One of the servers drains.
void Draining(benchmark::State& state) {
  PlannerInput input =
      Instance(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)), 1.0);
  PlanResult<PlannerOutput> first = PlanByCost(input);
  if (!first.ok()) {
    state.SkipWithError(first.error().message.c_str());
    return;
  }
  input.current = std::move(first.value());
  input.topology.servers.front().draining = true;
  PlanAgainAndAgain(state, input);
}

// Tables, servers, per cent of the bytes in memory.
BENCHMARK(FromNothing)
    ->Args({26, 4, 100})
    ->Args({26, 4, 30})
    ->Args({1000, 64, 100})
    ->Args({1000, 64, 30})
    ->Args({10000, 1000, 100})
    ->Args({10000, 1000, 30})
    ->Args({100000, 10000, 100})
    ->Args({100000, 10000, 30})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Draining)
    ->Args({1000, 64})
    ->Args({10000, 1000})
    ->Args({100000, 10000})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hotbed

BENCHMARK_MAIN();
