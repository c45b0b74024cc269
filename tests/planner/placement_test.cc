#include "planner/model/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace placement_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TableSpec Bounded(uint64_t rows, uint32_t dim = 64) {
  TableSpec spec;
  spec.id = 7;
  spec.name = "clicks";
  spec.rows = rows;
  spec.dim = dim;
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  return spec;
}

TableSpec Hashed(uint64_t rows, uint32_t dim = 64) {
  TableSpec spec = Bounded(rows, dim);
  spec.hashed = true;
  return spec;
}

std::vector<ShardRange> Cut(const TableSpec& spec, uint32_t shards_min = 0) {
  auto ranges = CutTable(spec, shards_min);
  EXPECT_TRUE(ranges.ok()) << ranges.status();
  return ranges.ok() ? *ranges : std::vector<ShardRange>();
}

std::vector<uint64_t> Sizes(const std::vector<ShardRange>& ranges) {
  std::vector<uint64_t> sizes;
  for (const ShardRange& r : ranges) sizes.push_back(r.limit - r.first);
  return sizes;
}

TEST(CutTable, SmallTableIsOneShard) {
  EXPECT_THAT(Sizes(Cut(Bounded(1))), ElementsAre(1));
  EXPECT_THAT(Sizes(Cut(Bounded((1 << 20) / 260))), ElementsAre((1 << 20) / 260));
  EXPECT_THAT(Sizes(Cut(Hashed(10))), ElementsAre(kHashBuckets));
}

TEST(CutTable, AboveOneMebibyteThereAreEight) {
  EXPECT_EQ(Cut(Bounded((1 << 20) / 260 + 1)).size(), kShardsPerTableMin);
  EXPECT_EQ(Cut(Hashed(100000)).size(), kShardsPerTableMin);
  // Its size is not known: it may become large.
  EXPECT_EQ(Cut(Hashed(0)).size(), kShardsPerTableMin);
}

TEST(CutTable, FewWideRowsMakeOneShardEach) {
  TableSpec spec = Bounded(3, kDimMax);
  EXPECT_EQ(Cut(spec).size(), 1u);  // 98 KiB
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.rows = 12;  // 1.1 MiB, so eight shards
  EXPECT_THAT(Sizes(Cut(spec)), ElementsAre(2, 2, 2, 2, 1, 1, 1, 1));
}

TEST(CutTable, FirstShardsTakeTheRemainder) {
  EXPECT_THAT(Sizes(Cut(Bounded(8003, 64))),
              ElementsAre(1001, 1001, 1001, 1000, 1000, 1000, 1000, 1000));
}

TEST(CutTable, MoreShardsOnDemand) {
  EXPECT_EQ(Cut(Bounded(100), 10).size(), 10u);
  EXPECT_EQ(Cut(Bounded(1000000), 3).size(), kShardsPerTableMin) << "at least, not exactly";
  EXPECT_EQ(Cut(Hashed(0), kShardsPerTableMax).size(), kShardsPerTableMax);

  auto too_many = CutTable(Bounded(1000000), kShardsPerTableMax + 1);
  EXPECT_EQ(too_many.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_many.status().message()), HasSubstr("1025"));
  EXPECT_THAT(std::string(too_many.status().message()), HasSubstr("limit is 1024"));
  auto too_thin = CutTable(Bounded(9), 10);
  EXPECT_EQ(too_thin.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_thin.status().message()), HasSubstr("9 rows"));
}

TEST(CutTable, HugeTableKeepsToTheNumberOfShards) {
  EXPECT_EQ(Cut(Bounded(uint64_t{1} << 40)).size(), kShardsPerTableMax);
  EXPECT_EQ(Cut(Hashed(uint64_t{1} << 62, kDimMax)).size(), kShardsPerTableMax);
}

TEST(CutTable, SlicesOfColumnsAreCutAlikeAndStandOneAfterTheOther) {
  TableSpec spec = Bounded(100, 7);
  spec.column_slices = 3;
  const std::vector<ShardRange> ranges = Cut(spec, 4);  // 4 shards of 3 slices: 2 each
  EXPECT_THAT(Sizes(ranges), ElementsAre(50, 50, 50, 50, 50, 50));
  std::vector<uint32_t> columns;
  for (const ShardRange& r : ranges) columns.push_back(r.column_limit - r.column_first);
  EXPECT_THAT(columns, ElementsAre(3, 3, 2, 2, 2, 2));
  EXPECT_EQ(ranges[2].column_first, 3u);
  EXPECT_EQ(ranges[5].column_limit, 7u);

  auto too_many = CutTable(spec, kShardsPerTableMax);
  EXPECT_EQ(too_many.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_many.status().message()), HasSubstr("in 3 column slices"));
  EXPECT_EQ(Cut(spec, 300).size(), 300u);
  EXPECT_FALSE(CutTable(spec, 301).ok()) << "101 ranges of 100 rows";
}

TEST(CutTable, PropertiesOfRandomSlicedTables) {
  const TestSeed seed(20260102);
  Random random(seed.value());
  for (int i = 0; i < 2000; ++i) {
    TableSpec spec = Bounded(1 + (random.Next() >> (24 + random.Uniform(40))),
                             static_cast<uint32_t>(1 + random.Uniform(kDimMax)));
    spec.hashed = random.OneIn(2);
    spec.column_slices = 1 + random.Uniform(std::min(spec.dim, kColumnSlicesMax));
    spec.optimizer.kind = static_cast<OptimizerKind>(random.Uniform(4));
    const uint64_t units = spec.hashed ? kHashBuckets : spec.rows;
    const std::vector<ShardRange> ranges = Cut(spec);
    ASSERT_LE(ranges.size(), kShardsPerTableMax);
    ASSERT_EQ(ranges.size() % spec.column_slices, 0u);
    const size_t in_slice = ranges.size() / spec.column_slices;
    const long double total = static_cast<long double>(spec.rows) *
                              (spec.weight_bytes_per_row() + spec.state_bytes_per_row());
    if (total > (1 << 20) && units >= kShardsPerTableMin) {
      ASSERT_GE(ranges.size(), kShardsPerTableMin);
    }
    uint32_t column = 0;
    for (size_t slice = 0; slice < spec.column_slices; ++slice) {
      uint64_t next = 0;
      const uint32_t width =
          spec.dim / spec.column_slices + (slice < spec.dim % spec.column_slices);
      for (size_t r = 0; r < in_slice; ++r) {
        const ShardRange& range = ranges[slice * in_slice + r];
        ASSERT_EQ(range.first, next);
        ASSERT_EQ(range.limit, ranges[r].limit) << "cut elsewhere than the first slice";
        ASSERT_EQ(range.column_first, column);
        ASSERT_EQ(range.column_limit, column + width);
        // As many as the limit allows, or none above the limit.
        if ((in_slice + 1) * spec.column_slices <= kShardsPerTableMax && in_slice < units) {
          ASSERT_LE(RangeBytes(spec, range), kShardBytesMax);
        }
        next = range.limit;
      }
      ASSERT_EQ(next, units);
      column += width;
    }
    ASSERT_EQ(column, spec.dim);
  }
}

TEST(CutTable, PropertiesOfRandomTables) {
  const TestSeed seed(20260101);
  Random random(seed.value());
  constexpr uint64_t kTotalMax = uint64_t{kShardsPerTableMax} * kShardBytesMax;
  for (int i = 0; i < 3000; ++i) {
    TableSpec spec = Bounded(1 + (random.Next() >> (24 + random.Uniform(40))),
                             static_cast<uint32_t>(1 + random.Uniform(kDimMax)));
    spec.hashed = random.OneIn(2);
    spec.optimizer.kind = static_cast<OptimizerKind>(random.Uniform(4));
    const uint32_t shards_min = random.OneIn(4) ? 1 + random.Uniform(kShardsPerTableMax) : 0;
    const uint64_t units = spec.hashed ? kHashBuckets : spec.rows;
    auto ranges = CutTable(spec, shards_min);
    if (shards_min > units) {
      EXPECT_FALSE(ranges.ok());
      continue;
    }
    ASSERT_TRUE(ranges.ok()) << ranges.status();
    const long double total = static_cast<long double>(spec.rows) *
                              (spec.weight_bytes_per_row() + spec.state_bytes_per_row());

    uint64_t next = 0, smallest = ~uint64_t{0}, largest = 0;
    for (const ShardRange& r : *ranges) {
      ASSERT_EQ(r.first, next);
      ASSERT_LT(r.first, r.limit);
      ASSERT_EQ(r.column_first, 0u);
      ASSERT_EQ(r.column_limit, spec.dim);
      next = r.limit;
      ASSERT_TRUE(largest == 0 || r.limit - r.first <= smallest) << "longer ones come first";
      smallest = std::min(smallest, r.limit - r.first);
      largest = std::max(largest, r.limit - r.first);
      if (total <= kTotalMax) {
        ASSERT_LE(RangeBytes(spec, r), kShardBytesMax);
      }
    }
    ASSERT_EQ(next, units);
    ASSERT_LE(largest - smallest, 1u);
    ASSERT_LE(ranges->size(), kShardsPerTableMax);
    ASSERT_GE(ranges->size(), shards_min);
    if (total > (1 << 20) && units >= kShardsPerTableMin) {
      ASSERT_GE(ranges->size(), kShardsPerTableMin);
    }
  }
}

TEST(RangeBytes, AddUpToTheTable) {
  const TableSpec spec = Bounded(8003);
  uint64_t sum = 0;
  for (const ShardRange& r : Cut(spec)) sum += RangeBytes(spec, r);
  EXPECT_EQ(sum, 8003u * 260);
  EXPECT_EQ(RangeBytes(Hashed(65536 * 10), {0, 1, 0, 64}), 2600u);
  EXPECT_EQ(RangeBytes(Hashed(1), {0, 1, 0, 64}), 1u) << "rounded up";
  EXPECT_EQ(RangeBytes(Bounded(uint64_t{1} << 62, kDimMax), {0, uint64_t{1} << 62, 0, kDimMax}),
            ~uint64_t{0});
}

TEST(RangeBytes, OfASliceHaveItsOwnState) {
  TableSpec spec = Bounded(8003, 10);
  spec.column_slices = 3;
  EXPECT_EQ(spec.state_bytes_per_row(), 12u) << "a statistic a slice";
  uint64_t sum = 0;
  for (const ShardRange& r : Cut(spec)) sum += RangeBytes(spec, r);
  EXPECT_EQ(sum, 8003u * (40 + 12));
  spec.optimizer.kind = OptimizerKind::kAdam;
  EXPECT_EQ(spec.state_bytes_per_row(), 80u);
}

std::vector<ServerId> Owners(const Plan& plan) {
  std::vector<ServerId> owners;
  for (const PlannedShard& s : plan.shards) owners.push_back(s.assignments.front().server);
  return owners;
}

Plan Place(const TableSpec& spec, std::vector<ServerCandidate> servers, uint32_t shards_min = 0) {
  auto plan = PlaceTable(spec, std::move(servers), shards_min);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

TEST(PlaceTable, RunsOfAdjacentShardsInOrderOfServers) {
  EXPECT_THAT(Owners(Place(Bounded(100000), {{1, 0}, {2, 0}, {3, 0}})),
              ElementsAre(1, 1, 1, 2, 2, 2, 3, 3));
  EXPECT_THAT(Owners(Place(Bounded(100000), {{3, 0}, {1, 500}, {2, 0}})),
              ElementsAre(1, 1, 2, 2, 2, 3, 3, 3))
      << "the fullest takes the short run";
}

TEST(PlaceTable, FewShardsGoToTheEmptiestServers) {
  EXPECT_THAT(Owners(Place(Bounded(10), {{1, 10}, {2, 5}, {3, 5}})), ElementsAre(2));
  EXPECT_THAT(Owners(Place(Bounded(10), {{1, 10}, {2, 5}, {3, 6}}, 2)), ElementsAre(2, 3));
}

// Many small tables with backups: whoever got backups of one gets primaries of the next, though
// others have fewer bytes.
TEST(PlaceTable, PrimariesGoToServersWithTheFewestBytesOfPrimaries) {
  EXPECT_THAT(Owners(Place(Bounded(10), {{1, 20, "", 20}, {2, 30, "", 0}})), ElementsAre(2));
  EXPECT_THAT(Owners(Place(Bounded(10), {{1, 30, "", 20}, {2, 20, "", 20}})), ElementsAre(2));
}

TEST(PlaceTable, NamesTheTableWithoutServers) {
  auto plan = PlaceTable(Bounded(10), {}, 0);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("\"clicks\""));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("no shard server is live"));
}

TEST(PlaceTable, EvenAndIndependentOfTheOrderOfServers) {
  const TestSeed seed(20260102);
  Random random(seed.value());
  for (int i = 0; i < 200; ++i) {
    const TableSpec spec = random.OneIn(2) ? Hashed(random.Uniform(100000000))
                                           : Bounded(1 + random.Uniform(100000000));
    std::vector<ServerCandidate> servers;
    for (uint64_t s = 0, n = 1 + random.Uniform(20); s < n; ++s) {
      servers.push_back({s + 1, random.Uniform(5) << 20});
    }
    const Plan plan = Place(spec, servers);
    std::shuffle(servers.begin(), servers.end(), random);
    ASSERT_EQ(plan, Place(spec, servers));

    std::map<ServerId, uint64_t> shards;
    for (const ServerCandidate& s : servers) shards[s.server] = 0;
    const std::vector<ServerId> owners = Owners(plan);
    for (const ServerId s : owners) ++shards[s];
    uint64_t fewest = ~uint64_t{0}, most = 0;
    for (const auto& [server, n] : shards) {
      fewest = std::min(fewest, n);
      most = std::max(most, n);
    }
    ASSERT_LE(most - fewest, 1u);
    ASSERT_TRUE(std::is_sorted(owners.begin(), owners.end())) << "one run a server";
  }
}

TableSpec Copied(uint32_t replicas, uint64_t rows = 100000) {
  TableSpec spec = Bounded(rows);
  spec.durability = Durability::kReplicated;
  spec.replicas = replicas;
  return spec;
}

std::vector<ServerId> Holders(const PlannedShard& shard) {
  std::vector<ServerId> holders;
  for (const Assignment& a : shard.assignments) {
    EXPECT_EQ(a.role, holders.empty() ? Role::kPrimary : Role::kBackup);
    holders.push_back(a.server);
  }
  return holders;
}

TEST(PlaceTable, BackupsBesideThePrimariesAsBefore) {
  const std::vector<ServerCandidate> servers = {{1, 0}, {2, 0}, {3, 0}};
  const Plan plan = Place(Copied(2), servers);
  EXPECT_THAT(Owners(plan), ElementsAre(1, 1, 1, 2, 2, 2, 3, 3));
  std::vector<ServerId> backups;
  for (const PlannedShard& shard : plan.shards) {
    ASSERT_EQ(shard.assignments.size(), 2u);
    backups.push_back(Holders(shard)[1]);
  }
  // s3, which has a shard less, takes the first backup; then, in turns, the server with the fewest.
  EXPECT_THAT(backups, ElementsAre(3, 3, 2, 1, 3, 1, 2, 1));
}

TEST(PlaceTable, TooFewFailureDomainsAreNamed) {
  auto plan = PlaceTable(Copied(3), {{1, 0, "h1"}, {2, 0, "h2"}, {3, 0, "h1"}}, 0);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"\"clicks\"", "3 replicas", "the 3 servers", "have 2",
                           "--failure-domain", "fewer replicas"}) {
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(part));
  }
  EXPECT_TRUE(PlaceTable(Copied(2), {{1, 0, "h1"}, {2, 0, "h2"}, {3, 0, "h1"}}, 0).ok());
}

// Invariants for random servers and domains; and if every server is a domain of its own, bytes are
// even.
TEST(PlaceTable, ReplicasShareNoDomainAndFillServersEvenly) {
  const TestSeed seed(20260103);
  Random random(seed.value());
  for (int i = 0; i < 300; ++i) {
    const uint32_t replicas = 2 + random.Uniform(2);
    const bool own = random.OneIn(2);
    const uint64_t n = replicas + 1 + random.Uniform(10);
    std::map<ServerId, std::string> domains;
    std::vector<ServerCandidate> servers;
    for (ServerId s = 1; s <= n; ++s) {
      const uint64_t domain = s <= replicas ? s : 1 + random.Uniform(replicas + 2);
      servers.push_back({s, 0, own ? "" : std::to_string(domain)});
      domains[s] = own ? std::to_string(s) : servers.back().failure_domain;
    }
    const TableSpec spec = Copied(replicas, 65536 * (1 + random.Uniform(20)));
    const uint32_t shards_min = 8 * (1 + random.Uniform(8));
    const Plan plan = Place(spec, servers, shards_min);
    std::shuffle(servers.begin(), servers.end(), random);
    ASSERT_EQ(plan, Place(spec, servers, shards_min)) << "whatever the order of the servers";
    std::map<ServerId, int> replicas_on;
    for (const ServerCandidate& s : servers) replicas_on[s.server] = 0;
    for (const PlannedShard& shard : plan.shards) {
      std::set<std::string> used;
      for (const ServerId s : Holders(shard)) {
        used.insert(domains[s]);
        ++replicas_on[s];
      }
      ASSERT_EQ(shard.assignments.size(), replicas);
      ASSERT_EQ(used.size(), replicas) << "two replicas in one domain";
    }
    if (!own) continue;
    const auto [least, most] =
        std::minmax_element(replicas_on.begin(), replicas_on.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    ASSERT_LE(most->second - least->second, 2) << n << " servers, " << plan.shards.size();
  }
}

// The backups of one server's primaries are spread, so that the work of a lost server is shared.
TEST(PlaceTable, WhoFailsIsReplacedByAllOthers) {
  std::vector<ServerCandidate> servers;
  for (ServerId s = 1; s <= 5; ++s) servers.push_back({s, 0});
  std::map<std::pair<ServerId, ServerId>, int> pairs;
  for (const PlannedShard& shard : Place(Copied(2, 200000), servers, 100).shards) {
    const std::vector<ServerId> holders = Holders(shard);
    ++pairs[{holders[0], holders[1]}];
  }
  ASSERT_EQ(pairs.size(), 20u);
  for (const auto& [pair, n] : pairs) {
    EXPECT_GE(n, 4) << pair.first << " " << pair.second;
    EXPECT_LE(n, 6) << pair.first << " " << pair.second;
  }
}

}  // namespace placement_test
}  // namespace hotbed
