// Shard sizes and storage against the values that TorchRec's tests publish
// (torchrec/distributed/planner/tests/test_enumerators.py and test_shard_estimators.py at a48cef7),
// and what is reserved.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/shard_layout.h"
#include "planner/torchrec/storage_estimator.h"
#include "planner/torchrec/storage_reservation.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_storage_test {

struct Sized {
  uint64_t rows = 0;
  uint32_t columns = 0;
  int64_t hbm = 0;
  int64_t ddr = 0;
  friend bool operator==(const Sized&, const Sized&) = default;
  friend void PrintTo(const Sized& sized, std::ostream* out) {
    *out << sized.rows << "x" << sized.columns << " hbm " << sized.hbm << " ddr " << sized.ddr;
  }
};

std::vector<Sized> Shards(const ShardingOption& option) {
  std::vector<Sized> shards;
  for (const StoredRun& run : option.runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      shards.push_back({run.units, run.columns, static_cast<int64_t>(run.storage.hbm),
                        static_cast<int64_t>(run.storage.ddr)});
    }
  }
  return shards;
}

// Four tables on two hosts of four, batch size 256.
PlannerInput FourTables() {
  PlannerInput input = ServersOf(2, 4, PlannerDevice::kCuda);
  input.workload.batch_size = 256;
  for (uint32_t i = 0; i < 4; ++i) {
    AddTable(&input, 100 + i * 10, 20 + i * 20);
    ConstraintOf(&input, i).columns_min = i == 3 ? 40 : 20;
  }
  ConstraintOf(&input, 1).pooling_factors = {1, 3, 5};
  ConstraintOf(&input, 2).pooling_factors = {8, 2};
  ConstraintOf(&input, 3).pooling_factors = {2, 1, 3, 7};
  return input;
}

std::vector<std::vector<Sized>> ShardsOfAll(PlannerInput input, Sharding sharding,
                                            const std::string& kernel) {
  for (uint32_t t = 0; t < input.tables.size(); ++t) Allow(&input, t, {sharding}, {kernel});
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto pins = PinnedRanks(input, topology);
  const auto space = EnumerateOptions(input, topology, loads.value(), pins.value());
  EXPECT_TRUE(space.ok()) << space.error().message;
  std::vector<std::vector<Sized>> shards;
  for (const auto& options : space.value()) {
    EXPECT_EQ(options.size(), 1u);
    shards.push_back(Shards(options[0]));
  }
  return shards;
}

// `count` of one kind and one of another.
std::vector<Sized> Several(size_t count, Sized sized, std::vector<Sized> rest = {}) {
  std::vector<Sized> shards(count, sized);
  shards.insert(shards.end(), rest.begin(), rest.end());
  return shards;
}

using All = std::vector<std::vector<Sized>>;

TEST(TorchrecStorageTest, RowWiseGoldens) {
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kRowWise, "fused"),
            (All{Several(7, {13, 20, 166928, 0}, {{9, 20, 166608, 0}}),
                 Several(7, {14, 40, 1003712, 0}, {{12, 40, 1003392, 0}}),
                 Several(8, {15, 60, 1007120, 0}),
                 Several(7, {17, 80, 2653504, 0}, {{11, 80, 2651584, 0}})}));
}

// TorchRec's cache state of a shard with a load factor of 0.2.
int64_t CacheState(double rows) { return static_cast<int64_t>(std::ceil(rows * (4 + 0.2 * 16))); }

TEST(TorchrecStorageTest, CachedRowWiseGoldens) {
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kRowWise, "fused_uvm_caching"),
            (All{Several(7, {13, 20, 166096 + CacheState(13), 1040},
                         {{9, 20, 166032 + CacheState(9), 720}}),
                 Several(7, {14, 40, 1001920 + CacheState(14), 2240},
                         {{12, 40, 1001856 + CacheState(12), 1920}}),
                 Several(8, {15, 60, 1004240 + CacheState(15), 3600}),
                 Several(7, {17, 80, 2649152 + CacheState(17), 5440},
                         {{11, 80, 2648768 + CacheState(11), 3520}})}));
}

// Shards of the first table, of 13 rows, with 2,048 bytes of ids and 163,840 of outputs, counted by
// pipeline as in TorchRec's test_pipelined_storage.
TEST(TorchrecStorageTest, PipelinesHoldIdsOfSeveralBatches) {
  PlannerInput input = FourTables();
  const auto first = [&](const std::string& kernel) {
    return ShardsOfAll(input, Sharding::kRowWise, kernel)[0][0];
  };
  EXPECT_EQ(first("fused").hbm, 1040 + 2048 + 163840);
  input.options.torchrec.pipeline = TorchrecPipeline::kSparseDist;
  EXPECT_EQ(first("fused").hbm, 1040 + 2 * 2048);
  EXPECT_EQ(first("fused_uvm_caching").hbm, 208 + CacheState(13) + 2 * 2048);
  input.options.torchrec.pipeline = TorchrecPipeline::kPrefetch;
  EXPECT_EQ(first("fused").hbm, 1040 + 3 * 2048);
  EXPECT_EQ(first("fused_uvm_caching").hbm, 208 + CacheState(13) + 10 * 2048);
  EXPECT_EQ(first("fused_uvm_caching").ddr, 1040);
  EXPECT_EQ(first("dram_virtual_table").hbm, 10 * 2048);
  ConstraintOf(&input, 0).prefetch_passes = 10;
  EXPECT_EQ(first("fused_uvm_caching").hbm, 208 + CacheState(13) + 3 * 2048 + 3276)
      << "1.6 x 2048, cut off";
  EXPECT_EQ(first("fused").hbm, 1040 + 3 * 2048);
  input.options.torchrec.run_embedding_at_peak_memory = true;
  EXPECT_EQ(first("fused").hbm, 1040 + 3 * 2048 + 163840);
  EXPECT_EQ(first("fused_uvm_caching").hbm, 208 + CacheState(13) + 3 * 2048 + 3276 + 163840);
  input.options.torchrec.pipeline = TorchrecPipeline::kSparseDist;
  EXPECT_EQ(first("fused").hbm, 1040 + 2 * 2048 + 163840);
  for (uint32_t t = 0; t < 4; ++t) ConstraintOf(&input, t).kernels.clear();
  input.topology.device = PlannerDevice::kCpu;
  EXPECT_EQ(ShardsOfAll(input, Sharding::kTableWise, "fused")[0][0].ddr,
            100 * 20 * 4 + 256 * 8 * 8 + 256 * 8 * 20 * 4)
      << "host memory is not pipelined";
}

// The goldens of virtual tables: their rows are cut by buckets, which changes nothing here.
TEST(TorchrecStorageTest, KeyValueGoldens) {
  const All shards = ShardsOfAll(FourTables(), Sharding::kRowWise, "dram_virtual_table");
  const std::vector<int64_t> goldens = {165888, 1001472, 1003520, 2648064};
  for (size_t t = 0; t < goldens.size(); ++t) {
    for (const Sized& shard : shards[t]) {
      EXPECT_EQ(shard.hbm, goldens[t]);
      EXPECT_EQ(shard.ddr, 0);
    }
  }
}

TEST(TorchrecStorageTest, TableRowWiseGoldens) {
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kTableRowWise, "fused"),
            (All{Several(4, {25, 20, 169936, 0}),
                 Several(3, {28, 40, 1024384, 0}, {{26, 40, 1024064, 0}}),
                 Several(4, {30, 60, 1031200, 0}),
                 Several(3, {33, 80, 2685248, 0}, {{31, 80, 2684608, 0}})}));
}

TEST(TorchrecStorageTest, ColumnGoldens) {
  const All goldens = {Several(1, {100, 20, 188224, 0}), Several(2, {110, 20, 647776, 0}),
                       Several(3, {120, 20, 501120, 0}), Several(2, {130, 40, 1544512, 0})};
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kColumnWise, "fused"), goldens);
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kTableColumnWise, "fused"), goldens);
}

TEST(TorchrecStorageTest, WholeTables) {
  // 256 ids and vectors a rank; of data_parallel its own only, else those of all eight.
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kTableWise, "fused")[0],
            Several(1, {100, 20, 8000 + 256 * 8 * 8 + 256 * 8 * 80, 0}));
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kDataParallel, "dense")[0],
            Several(8, {100, 20, 8000 + 256 * 8 + 256 * 80, 0}));
  EXPECT_EQ(ShardsOfAll(FourTables(), Sharding::kTableWise, "fused_uvm")[0],
            Several(1, {100, 20, 256 * 8 * 8 + 256 * 8 * 80, 8000}));
  PlannerInput cpu = FourTables();
  cpu.topology.device = PlannerDevice::kCpu;
  EXPECT_EQ(ShardsOfAll(cpu, Sharding::kTableWise, "fused")[0],
            Several(1, {100, 20, 0, 8000 + 256 * 8 * 8 + 256 * 8 * 80}));
}

TEST(TorchrecStorageTest, OptimizerIsAMultipleOfTheWeights) {
  PlannerInput input = FourTables();
  const int64_t plain = ShardsOfAll(input, Sharding::kTableWise, "fused")[0][0].hbm;
  const auto with = [&](PlannerOptimizer optimizer) {
    input.tables[0].optimizer = optimizer;
    return ShardsOfAll(input, Sharding::kTableWise, "fused")[0][0].hbm - plain;
  };
  EXPECT_EQ(with(PlannerOptimizer::kSgd), 0);
  EXPECT_EQ(with(PlannerOptimizer::kAdam), 16000);
  EXPECT_EQ(with(PlannerOptimizer::kRowwiseAdagrad), 400);
  EXPECT_EQ(with(PlannerOptimizer::kAdagrad), 8000);
  EXPECT_EQ(with(PlannerOptimizer::kAdamW), 8000);
  EXPECT_EQ(OptimizerFactor(PlannerOptimizer::kRowwiseAdagrad, 3), 1.0 / 3);
}

TEST(TorchrecStorageTest, HalfWidthElements) {
  PlannerInput input = FourTables();
  input.tables[0].weight = PlannerWeight::kFp16;
  EXPECT_EQ(ShardsOfAll(input, Sharding::kTableWise, "fused")[0][0].hbm,
            4000 + 256 * 8 * 8 + 256 * 8 * 40);
}

TEST(TorchrecStorageTest, InferenceCountsWeightsOnly) {
  PlannerInput input = FourTables();
  input.tables[0].optimizer = PlannerOptimizer::kAdam;
  input.options.reserve.kind = ReserveKind::kInference;
  EXPECT_EQ(ShardsOfAll(input, Sharding::kTableWise, "fused")[0][0].hbm, 8000);
  // 20 + 4 bytes, rounded up to a multiple of 16, plus 4.
  EXPECT_EQ(ShardsOfAll(input, Sharding::kTableWise, "quant")[0][0].hbm, 100 * (32 + 4));
}

TEST(TorchrecStorageTest, TablesBeyondAllMemoryDoNotWrap) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  AddTable(&input, uint64_t{1} << 62, 1 << 30);
  Allow(&input, 0, {Sharding::kRowWise}, {"fused"});
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto space = EnumerateOptions(input, topology, loads.value(), {{}}).value();
  EXPECT_GT(space[0][0].sum.hbm, absl::int128(1) << 93);
}

// --- Layouts ---

std::vector<uint64_t> Units(const std::vector<ShardRun>& runs) {
  std::vector<uint64_t> units;
  for (const ShardRun& run : runs) units.insert(units.end(), run.count, run.units);
  return units;
}

TEST(TorchrecLayoutTest, RowsByCeiling) {
  EXPECT_EQ(Units(EvenRows(10, 4, 8)), (std::vector<uint64_t>{3, 3, 3, 1}));
  EXPECT_EQ(Units(EvenRows(5, 4, 8)), (std::vector<uint64_t>{2, 2, 1, 0}));
  EXPECT_EQ(Units(EvenRows(3, 4, 8)), (std::vector<uint64_t>{1, 1, 1, 0}));
  EXPECT_EQ(Units(EvenRows(8, 4, 8)), (std::vector<uint64_t>{2, 2, 2, 2}));
  EXPECT_EQ(Units(EvenRows(1, 3, 8)), (std::vector<uint64_t>{1, 0, 0}));
}

TEST(TorchrecLayoutTest, ExtraBucketsToTheFirstRanks) {
  EXPECT_EQ(Units(BucketRows(5, 4, 8)), (std::vector<uint64_t>{2, 1, 1, 1}));
  EXPECT_EQ(Units(BucketRows(10, 8, 8)), (std::vector<uint64_t>{2, 2, 1, 1, 1, 1, 1, 1}));
}

TEST(TorchrecLayoutTest, RowsByUnevenMemory) {
  const std::vector<double> memory = {1, 2, 3};
  EXPECT_EQ(Units(UnevenRows(100, memory, 8)), (std::vector<uint64_t>{16, 33, 51}));
  const std::vector<double> some_none = {0, 5};
  EXPECT_EQ(Units(UnevenRows(7, some_none, 8)), (std::vector<uint64_t>{0, 7}));
}

TEST(TorchrecLayoutTest, ColumnBlocks) {
  EXPECT_EQ(ColumnBlock(256, std::nullopt), 128u);
  EXPECT_EQ(ColumnBlock(128, std::nullopt), 128u);
  EXPECT_EQ(ColumnBlock(64, std::nullopt), 64u);
  EXPECT_EQ(ColumnBlock(512, 5), 8u);
  EXPECT_EQ(ColumnBlock(80, 30), 40u);
  EXPECT_EQ(ColumnBlock(10, 4), 10u);    // nothing that divides it is a multiple of four
  EXPECT_EQ(ColumnBlock(384, 0), 128u);  // 0 is as good as none
  EXPECT_EQ(ColumnBlock(1000, 128), 200u);
  EXPECT_EQ(ColumnBlock(4294967292u, 4), 4u);
  for (uint32_t columns = 1; columns < 300; ++columns) {
    for (const uint32_t least : {1u, 4u, 7u, 32u, 128u, 400u}) {
      uint32_t expected = columns;  // TorchRec's loop
      for (uint32_t width = least; width < columns; ++width) {
        if (columns % width != 0 || width % 4 != 0) continue;
        expected = width;
        break;
      }
      ASSERT_EQ(ColumnBlock(columns, least), expected) << columns << " from " << least;
    }
  }
}

TEST(TorchrecLayoutTest, GridIsRowsPerColumnBlock) {
  InputTable table;
  table.rows = 10;
  table.dim = 16;
  const LayoutRanks ranks = {.ranks = 8, .ranks_per_host = 4};
  EXPECT_EQ(LayOut(table, Sharding::kGrid, 8, ranks),
            (std::vector<ShardRun>{{.count = 3, .units = 3, .columns = 8},
                                   {.count = 1, .units = 1, .columns = 8},
                                   {.count = 3, .units = 3, .columns = 8},
                                   {.count = 1, .units = 1, .columns = 8}}));
}

TEST(TorchrecLayoutTest, HashedTablesAreCutInBuckets) {
  InputTable table;
  table.rows = 1000000;
  table.dim = 16;
  table.hashed = true;
  const LayoutRanks ranks = {.ranks = 3, .ranks_per_host = 3};
  EXPECT_EQ(Units(LayOut(table, Sharding::kRowWise, std::nullopt, ranks)),
            (std::vector<uint64_t>{21846, 21845, 21845}));
  EXPECT_EQ(RowsOfUnits(table, 65536), 1000000u);
  EXPECT_EQ(RowsOfUnits(table, 1), 16u);  // 15.26 rounded up
}

// --- Reservations ---

Reserved ReservedOf(const PlannerInput& input) {
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  return ReserveStorage(input, topology, loads.value()).value();
}

TEST(TorchrecReservationTest, EachKind) {
  PlannerInput input = FourTables();
  input.topology.servers[0].device_bytes = 10000003;
  input.options.reserve.fraction = 0.15;
  input.options.reserve.dense_bytes = 1000;
  EXPECT_EQ(ReservedOf(input).left[0].hbm, 10000003);
  input.options.reserve.kind = ReserveKind::kPercentage;
  EXPECT_EQ(ReservedOf(input).left[0].hbm, 8500002);
  EXPECT_EQ(ReservedOf(input).left[0].ddr, absl::int128(128) << 30);
  // Poolings 1 + 9 + 10 + 13 of 256 ids.
  const int64_t ids = 33 * 256 * 8;
  input.options.reserve.kind = ReserveKind::kHeuristic;
  EXPECT_EQ(ReservedOf(input).left[0].hbm, 8500002 - 6000 - 20 * ids);
}

TEST(TorchrecReservationTest, InferenceTakesEachOnce) {
  PlannerInput input = FourTables();
  input.options.reserve = {.kind = ReserveKind::kInference, .fraction = 0.5, .dense_bytes = 77};
  EXPECT_EQ(ReservedOf(input).left[3].hbm, (absl::int128(16) << 30) - 77 - 33 * 256 * 8);
}

TEST(TorchrecReservationTest, CpuTakesFromHostMemory) {
  PlannerInput input = FourTables();
  input.topology.device = PlannerDevice::kCpu;
  input.options.reserve = {.kind = ReserveKind::kHeuristic, .fraction = 0.5, .dense_bytes = 100};
  EXPECT_EQ(ReservedOf(input).left[3].hbm, 0);
  EXPECT_EQ(ReservedOf(input).left[3].ddr, (absl::int128(128) << 30) - 600 - 20 * 33 * 256 * 8);
}

TEST(TorchrecReservationTest, MoreThanThereIs) {
  PlannerInput input = FourTables();
  for (InputServer& server : input.topology.servers) server.device_bytes = 1000;
  input.options.reserve = {.kind = ReserveKind::kHeuristic, .fraction = 0, .dense_bytes = 200};
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto reserved = ReserveStorage(input, topology, loads.value());
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().kind, PlanErrorKind::kInsufficientStorage);
  EXPECT_EQ(reserved.error().limit, 1000u);
  EXPECT_EQ(reserved.error().missing_bytes, 1200u + 20 * 33 * 256 * 8 - 1000);
}

}  // namespace torchrec_storage_test
}  // namespace hotbed::torchrec
