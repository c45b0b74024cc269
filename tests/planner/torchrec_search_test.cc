// Proposers, partitioners and rating, against the orders and ranks that TorchRec's tests publish
// (planner/tests/test_proposers.py, test_partitioners.py at a48cef7).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/partitioner.h"
#include "planner/torchrec/plan_search.h"
#include "planner/torchrec/proposers.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_search_test {

SearchSpace SpaceOf(const PlannerInput& input) {
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto pins = PinnedRanks(input, topology);
  return EnumerateOptions(input, topology, loads.value(), pins.value()).value();
}

using Choice = std::pair<Sharding, Kernel>;

std::vector<Choice> ChoiceOf(const SearchSpace& space, const Proposal& proposal) {
  std::vector<Choice> choice;
  for (size_t t = 0; t < space.size(); ++t) {
    const ShardingOption& option = space[t][proposal.choice[t]];
    choice.emplace_back(option.sharding, option.kernel);
  }
  return choice;
}

TEST(TorchrecProposersTest, GreedyMovesTheLargestTable) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (int i = 0; i < 2; ++i) {
    Allow(&input, AddTable(&input, 100, 10),
          {Sharding::kDataParallel, Sharding::kTableWise, Sharding::kColumnWise, Sharding::kRowWise,
           Sharding::kTableRowWise, Sharding::kTableColumnWise, Sharding::kGrid},
          {});
  }
  const SearchSpace space = SpaceOf(input);
  EXPECT_EQ(space[0].size(), 6u * 3 + 1);
  const auto greedy = GreedyProposer(space, true);
  const Choice rw = {Sharding::kRowWise, Kernel::kFused};
  const Choice twrw = {Sharding::kTableRowWise, Kernel::kFused};
  const Choice grid = {Sharding::kGrid, Kernel::kFused};
  const Choice dp = {Sharding::kDataParallel, Kernel::kDense};
  const std::vector<std::vector<Choice>> expected = {
      {rw, rw}, {twrw, rw}, {grid, rw}, {dp, rw}, {dp, twrw}};
  for (const std::vector<Choice>& choice : expected) {
    ASSERT_NE(greedy->Current(), nullptr);
    EXPECT_EQ(ChoiceOf(space, *greedy->Current()), choice);
    greedy->Next();
  }
}

// TorchRec's test_dynamic_programming_three_table: the least of each, and one bin in use.
TEST(TorchrecProposersTest, DynamicProgrammingOfThreeTables) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (uint32_t i = 1; i < 4; ++i) AddTable(&input, 100 * i, 10 * i);
  const SearchSpace space = SpaceOf(input);
  const auto proposer =
      DynamicProgrammingProposer(space, std::vector<Storage>(2, {.hbm = 100LL << 30, .ddr = 0}));
  int proposals = 0;
  double last = 0;
  for (; proposer->Current() != nullptr; proposer->Next(), ++proposals) {
    last = 0;
    for (size_t t = 0; t < 3; ++t) last += space[t][proposer->Current()->choice[t]].sum_ms;
  }
  EXPECT_EQ(proposals, 2);
  double least = 0;
  for (const std::deque<ShardingOption>& options : space) {
    least += std::min_element(options.begin(), options.end(), [](const auto& a, const auto& b) {
               return a.sum_ms < b.sum_ms;
             })->sum_ms;
  }
  EXPECT_DOUBLE_EQ(last, least) << "memory is no matter";
}

// The recurrence written down plainly, as dp[table][bin] over all options.
std::vector<std::vector<uint32_t>> PlainDynamicProgramming(const SearchSpace& space, double memory,
                                                           uint64_t bins) {
  struct State {
    double ms = -1;  // below 0: no choice
    double used = 0;
    std::vector<uint32_t> choice;
  };
  std::vector<State> states(bins);
  states[0].ms = 0;
  states[0].choice.resize(space.size());
  std::vector<uint32_t> tables;
  for (uint32_t t = 0; t < space.size(); ++t) tables.push_back(t);
  const auto least = [&](uint32_t t) {
    absl::int128 hbm = space[t][0].sum.hbm;
    for (const ShardingOption& option : space[t]) hbm = std::min(hbm, option.sum.hbm);
    return hbm;
  };
  std::stable_sort(tables.begin(), tables.end(),
                   [&](uint32_t a, uint32_t b) { return least(a) < least(b); });
  for (const uint32_t t : tables) {
    std::vector<uint32_t> order;
    for (uint32_t o = 0; o < space[t].size(); ++o) order.push_back(o);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return space[t][a].sum.hbm < space[t][b].sum.hbm;
    });
    std::vector<State> next(bins);
    for (const uint32_t o : order) {
      for (const State& state : states) {
        if (state.ms < 0) continue;
        State then = state;
        then.used +=
            static_cast<double>(space[t][o].sum.hbm) / (memory / static_cast<double>(bins));
        then.ms += space[t][o].sum_ms;
        then.choice[t] = o;
        if (then.used >= static_cast<double>(bins)) continue;
        State& at = next[static_cast<size_t>(then.used)];
        if (at.ms < 0 || then.ms < at.ms) at = then;
      }
    }
    states = std::move(next);
  }
  std::vector<std::vector<uint32_t>> choices;
  for (size_t bin = bins; bin-- > 0;) {
    if (states[bin].ms >= 0) choices.push_back(states[bin].choice);
  }
  return choices;
}

TEST(TorchrecProposersTest, DynamicProgrammingEqualsThePlainRecurrence) {
  for (uint32_t tables = 1; tables < 6; ++tables) {
    PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
    for (uint32_t i = 1; i <= tables; ++i) AddTable(&input, 90000 / i, 16 * i);
    const SearchSpace space = SpaceOf(input);
    for (const int64_t mib : {1, 4, 16, 64}) {
      const std::vector<Storage> capacity(2, {.hbm = mib << 20, .ddr = 0});
      const auto proposer = DynamicProgrammingProposer(space, capacity);
      ASSERT_NE(proposer->Current(), nullptr);
      std::vector<std::vector<uint32_t>> choices;
      for (proposer->Next(); proposer->Current() != nullptr; proposer->Next()) {
        choices.push_back(proposer->Current()->choice);
      }
      EXPECT_EQ(choices, PlainDynamicProgramming(space, static_cast<double>(2 * (mib << 20)), 200))
          << tables << " tables, " << mib << " MiB";
    }
  }
  PlannerInput cpu = ServersOf(1, 2, PlannerDevice::kCpu);
  AddTable(&cpu, 100, 10);
  const SearchSpace space = SpaceOf(cpu);
  const auto proposer = DynamicProgrammingProposer(space, std::vector<Storage>(2));
  proposer->Next();
  EXPECT_EQ(proposer->Current(), nullptr) << "no device memory, no bins";
}

TEST(TorchrecProposersTest, GreedyKeepsItsSums) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (uint32_t i = 1; i < 5; ++i) AddTable(&input, 100 * i, 64 * i);
  const SearchSpace space = SpaceOf(input);
  size_t steps = 0;
  size_t options = 0;
  for (const auto& of_table : space) options += of_table.size();
  for (const auto greedy = GreedyProposer(space, false); greedy->Current() != nullptr;
       greedy->Next(), ++steps) {
    const Proposal& proposal = *greedy->Current();
    Storage storage;
    uint64_t work = 0;
    for (size_t t = 0; t < space.size(); ++t) {
      storage += space[t][proposal.choice[t]].sum;
      work += space[t][proposal.choice[t]].work;
    }
    EXPECT_EQ(proposal.storage, storage);
    EXPECT_EQ(proposal.work, work);
  }
  EXPECT_EQ(steps, options - space.size() + 1);
}

// Three tables 100i x 10i: 19 options each without grid are 16; 16^3 combinations.
TEST(TorchrecProposersTest, GridSearchTriesAllUnlessTooMany) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (uint32_t i = 1; i < 4; ++i) AddTable(&input, 100 * i, 10 * i);
  const auto count = [](const SearchSpace& space) {
    size_t proposals = 0;
    for (const auto grid = GridSearchProposer(space); grid->Current() != nullptr; grid->Next()) {
      ++proposals;
    }
    return proposals;
  };
  EXPECT_EQ(count(SpaceOf(input)), 16u * 16 * 16);
  const SearchSpace space = SpaceOf(input);
  const auto grid = GridSearchProposer(space);
  const std::vector<uint32_t> first = grid->Current()->choice;
  grid->Next();
  EXPECT_EQ(grid->Current()->choice[0], first[0]);
  EXPECT_EQ(grid->Current()->choice[1], first[1]);
  EXPECT_NE(grid->Current()->choice[2], first[2]);
  AddTable(&input, 100, 10);
  EXPECT_EQ(count(SpaceOf(input)), 0u);
}

TEST(TorchrecProposersTest, UniformTakesOneTypeForAll) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (uint32_t i = 1; i < 4; ++i) {
    Allow(&input, AddTable(&input, 100 * i, 10 * i),
          {Sharding::kDataParallel, Sharding::kTableWise, Sharding::kRowWise,
           Sharding::kTableRowWise},
          {});
  }
  ConstraintOf(&input, 1).sharding.pop_back();  // so that not all can take table_row_wise
  const SearchSpace space = SpaceOf(input);
  std::vector<Choice> types;
  for (const auto uniform = UniformProposer(space); uniform->Current() != nullptr;
       uniform->Next()) {
    const std::vector<Choice> choice = ChoiceOf(space, *uniform->Current());
    EXPECT_EQ(choice, std::vector<Choice>(3, choice[0]));
    types.push_back(choice[0]);
  }
  EXPECT_EQ(types, (std::vector<Choice>{{Sharding::kDataParallel, Kernel::kDense},
                                        {Sharding::kTableWise, Kernel::kFused},
                                        {Sharding::kRowWise, Kernel::kFused}}));
}

// --- Partitioners: options with given times and sizes ---

struct Placement {
  bool placed = false;
  Assignment ranks;
  PartitionFailure failure;
};

class Tables {
 public:
  Tables(uint32_t hosts, uint32_t per_host)
      : topology_(BuildRankTopology(ServersOf(hosts, per_host, PlannerDevice::kCuda)).value()) {}

  Tables& Add(Sharding sharding, uint32_t shards, int64_t hbm, double ms) {
    ShardingOption option;
    option.sharding = sharding;
    option.runs = {
        {.count = shards, .units = 1, .columns = 1, .storage = {.hbm = hbm, .ddr = hbm}}};
    option.perf.forward_compute_ms = ms;
    SumUp(&option);
    options_.push_back(option);
    pins_.emplace_back();
    return *this;
  }
  Tables& Pin(std::vector<uint32_t> ranks) {
    pins_.back() = std::move(ranks);
    return *this;
  }
  Tables& Capacity(int64_t hbm) {
    for (Storage& rank : topology_.capacity) rank.hbm = hbm;
    return *this;
  }

  Placement Greedy() { return Partition(PartitionerKind::kGreedy); }
  Placement Balanced() { return Partition(PartitionerKind::kMemoryBalanced); }
  double Rate(const Placement& placement) const {
    return RatePlan(topology_, Options(), placement.ranks);
  }

 private:
  OptionsOfTables Options() const {
    OptionsOfTables options;
    for (const ShardingOption& option : options_) options.push_back(&option);
    return options;
  }
  Placement Partition(PartitionerKind kind) {
    GreedyPartitioner greedy(topology_, topology_.capacity, pins_);
    Placement result;
    result.placed = kind == PartitionerKind::kGreedy
                        ? greedy.Partition(Options(), SortBy::kStorage, std::nullopt, &result.ranks,
                                           &result.failure)
                        : PartitionMemoryBalanced(topology_, Options(), &greedy, &result.ranks,
                                                  &result.failure);
    return result;
  }

  RankTopology topology_;
  std::vector<ShardingOption> options_;
  std::vector<std::vector<uint32_t>> pins_;
};

TEST(TorchrecPartitionerTest, DeviceByTimeSoFar) {
  Tables even(1, 2);
  for (int i = 0; i < 4; ++i) even.Add(Sharding::kTableWise, 1, 1000, 100);
  EXPECT_EQ(even.Greedy().ranks, (Assignment{{0}, {1}, {0}, {1}}));
  Tables uneven(1, 2);
  uneven.Add(Sharding::kTableWise, 1, 1000, 300);
  for (int i = 0; i < 3; ++i) uneven.Add(Sharding::kTableWise, 1, 1000, 100);
  EXPECT_EQ(uneven.Greedy().ranks, (Assignment{{0}, {1}, {1}, {1}}));
}

// Ties go to the first rank of each host before the second of any.
TEST(TorchrecPartitionerTest, TiesSpreadOverHosts) {
  Tables tables(2, 2);
  for (int i = 0; i < 4; ++i) tables.Add(Sharding::kTableWise, 1, 1000, 100);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0}, {2}, {1}, {3}}));
}

TEST(TorchrecPartitionerTest, LargestFirst) {
  Tables tables(1, 2);
  tables.Add(Sharding::kTableWise, 1, 10, 1);
  tables.Add(Sharding::kTableWise, 1, 20, 5);
  tables.Add(Sharding::kTableWise, 1, 30, 2);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0}, {1}, {0}}));
}

TEST(TorchrecPartitionerTest, TableRowWiseByHost) {
  Tables tables(2, 8);
  for (int i = 0; i < 4; ++i) tables.Add(Sharding::kTableRowWise, 8, 1000, 100);
  const std::vector<uint32_t> first = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<uint32_t> second = {8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{first, second, first, second}));
}

TEST(TorchrecPartitionerTest, TableColumnWiseByHost) {
  Tables tables(2, 8);
  tables.Add(Sharding::kTableColumnWise, 10, 1000, 100);
  tables.Add(Sharding::kTableColumnWise, 4, 1000, 100);
  tables.Add(Sharding::kTableColumnWise, 12, 1000, 100);
  tables.Add(Sharding::kTableColumnWise, 10, 1000, 100);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{8, 9, 10, 11, 12, 13, 14, 15, 8, 9},
                                               {4, 5, 6, 7},
                                               {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3},
                                               {10, 11, 12, 13, 14, 15, 8, 9, 10, 11}}));
}

TEST(TorchrecPartitionerTest, RowAndColumnWiseTablesShareHosts) {
  Tables tables(2, 8);
  tables.Add(Sharding::kTableRowWise, 8, 1000, 100);
  tables.Add(Sharding::kTableColumnWise, 5, 1000, 100);
  tables.Add(Sharding::kTableColumnWise, 6, 1000, 100);
  tables.Add(Sharding::kTableRowWise, 8, 1000, 100);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0, 1, 2, 3, 4, 5, 6, 7},
                                               {8, 9, 10, 11, 12},
                                               {0, 1, 2, 3, 4, 5},
                                               {8, 9, 10, 11, 12, 13, 14, 15}}));
}

// Two tables of half a rank each fill the only rank of each host.
TEST(TorchrecPartitionerTest, HostsFillUp) {
  Tables tables(2, 1);
  tables.Capacity(1000);
  tables.Add(Sharding::kTableRowWise, 1, 500, 100);
  tables.Add(Sharding::kTableColumnWise, 2, 500, 100);
  EXPECT_TRUE(tables.Greedy().placed);
  tables.Add(Sharding::kTableColumnWise, 2, 500, 100);
  const Placement full = tables.Greedy();
  ASSERT_FALSE(full.placed);
  EXPECT_EQ(full.failure.table, 0u);  // placed last, for it is the smallest
  EXPECT_EQ(full.failure.shard.hbm, 500);
  EXPECT_EQ(full.failure.roomiest.hbm, 0);
}

// A trial on a host that fails leaves nothing behind.
TEST(TorchrecPartitionerTest, FailedTrialsAreUndone) {
  Tables tables(2, 2);
  tables.Capacity(10000);
  tables.Add(Sharding::kTableWise, 1, 9000, 1).Pin({0});
  tables.Add(Sharding::kTableWise, 1, 8500, 1).Pin({1});
  tables.Add(Sharding::kTableWise, 1, 8400, 10).Pin({2});
  // Host 0 has done less and has 2,500 left in all, but no room for the third shard of 800.
  tables.Add(Sharding::kTableColumnWise, 3, 800, 1);
  // What the trial took there would be missing here.
  tables.Add(Sharding::kColumnWise, 2, 900, 1);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0}, {1}, {2}, {3, 3, 3}, {0, 1}}));
}

TEST(TorchrecPartitionerTest, GridOverHosts) {
  Tables tables(3, 2);
  tables.Add(Sharding::kGrid, 4, 1000, 1);
  tables.Add(Sharding::kGrid, 4, 500, 1);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0, 1, 2, 3}, {4, 5, 0, 1}}));
  // More column blocks than hosts: hosts are taken in turn.
  Tables many(2, 2);
  many.Add(Sharding::kGrid, 6, 1000, 1);
  EXPECT_EQ(many.Greedy().ranks, (Assignment{{0, 1, 2, 3, 0, 1}}));
  Tables odd(2, 2);
  odd.Add(Sharding::kGrid, 3, 1000, 1);
  const Placement refused = odd.Greedy();
  EXPECT_FALSE(refused.placed);
  EXPECT_TRUE(refused.failure.grid_remainder);
}

// A full host is passed over by the window of adjacent hosts.
TEST(TorchrecPartitionerTest, GridSkipsFullHosts) {
  Tables tables(3, 1);
  tables.Capacity(1000);
  tables.Add(Sharding::kTableWise, 1, 900, 1).Pin({0});
  tables.Add(Sharding::kTableWise, 1, 200, 5).Pin({1});
  tables.Add(Sharding::kTableWise, 1, 200, 5).Pin({2});
  tables.Add(Sharding::kGrid, 2, 60, 1);
  tables.Add(Sharding::kGrid, 2, 80, 1);
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{0}, {1}, {2}, {2, 1}, {0, 1}}));
}

TEST(TorchrecPartitionerTest, UniformComesFirst) {
  Tables tables(1, 2);
  tables.Capacity(1000);
  tables.Add(Sharding::kTableWise, 1, 600, 1);
  tables.Add(Sharding::kRowWise, 2, 500, 1);
  const Placement placement = tables.Greedy();
  ASSERT_FALSE(placement.placed);
  EXPECT_EQ(placement.failure.table, 0u);
  EXPECT_EQ(placement.failure.roomiest.hbm, 500);
}

TEST(TorchrecPartitionerTest, PinsAreKept) {
  Tables tables(2, 2);
  tables.Add(Sharding::kColumnWise, 3, 10, 1).Pin({1, 2});
  tables.Add(Sharding::kTableRowWise, 2, 10, 1).Pin({2, 3});
  tables.Add(Sharding::kTableColumnWise, 2, 10, 1).Pin({3});
  tables.Add(Sharding::kGrid, 2, 10, 1).Pin({1, 2, 3});
  EXPECT_EQ(tables.Greedy().ranks, (Assignment{{2, 1, 2}, {2, 3}, {3, 3}, {2, 3}}));
}

TEST(TorchrecPartitionerTest, MemoryBalanced) {
  constexpr int64_t kMib = 1 << 20;
  // By storage and by time the same two tables share a rank of 2,000 MiB: nothing to improve.
  Tables same(1, 2);
  same.Capacity(2000 * kMib);
  for (int i = 0; i < 3; ++i) same.Add(Sharding::kTableWise, 1, 1000 * kMib, 100);
  EXPECT_EQ(same.Greedy().ranks, same.Balanced().ranks);
  // Time alone puts the two large tables on one rank; 2 % more time buys a better balance.
  Tables heavy(1, 2);
  heavy.Capacity(4000 * kMib);
  heavy.Add(Sharding::kTableWise, 1, 10 * kMib, 100);
  heavy.Add(Sharding::kTableWise, 1, 1000 * kMib, 51);
  heavy.Add(Sharding::kTableWise, 1, 1000 * kMib, 50);
  const Placement balanced = heavy.Balanced();
  ASSERT_TRUE(balanced.placed);
  EXPECT_EQ(heavy.Rate(balanced), 101);  // the alternative would cost 150
  heavy.Add(Sharding::kTableWise, 1, 1000 * kMib, 0.5);
  heavy.Add(Sharding::kTableWise, 1, 1000 * kMib, 0.4);
  EXPECT_EQ(heavy.Balanced().ranks, (Assignment{{0}, {1}, {1}, {0}, {0}}));
}

TEST(TorchrecPartitionerTest, RatedByTheSlowest) {
  Tables tables(1, 3);
  tables.Add(Sharding::kTableWise, 1, 10, 7);
  tables.Add(Sharding::kRowWise, 3, 10, 2);
  tables.Add(Sharding::kColumnWise, 4, 1, 1);
  const Placement placement = tables.Greedy();
  EXPECT_EQ(tables.Rate(placement), 9);
}

TEST(TorchrecSearchTest, BudgetEndsTheSearch) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (uint32_t i = 1; i < 4; ++i) AddTable(&input, 100 * i, 10 * i);
  SearchSpace space = SpaceOf(input);
  const RankTopology topology = BuildRankTopology(input).value();
  const std::vector<std::vector<uint32_t>> pins(3);
  const SearchResult all =
      SearchPlan(&space, topology, topology.capacity, pins, {.evaluations_max = 100000}, {});
  EXPECT_FALSE(all.cut_short);
  // All that greedy and uniform propose was among the combinations.
  EXPECT_EQ(all.proposals, 16u * 16 * 16);
  EXPECT_EQ(all.plans, all.proposals);
  const SearchResult few =
      SearchPlan(&space, topology, topology.capacity, pins, {.evaluations_max = 7}, {});
  EXPECT_TRUE(few.cut_short);
  EXPECT_EQ(few.proposals, 7u);
  ASSERT_TRUE(few.best.has_value());
  EXPECT_GE(few.best->rating_ms, all.best->rating_ms);
}

}  // namespace torchrec_search_test
}  // namespace hotbed::torchrec
