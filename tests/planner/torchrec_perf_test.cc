// Times of one shard against the values that TorchRec's tests publish
// (torchrec/distributed/planner/tests/test_shard_estimators.py at a48cef7).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "planner/model/plan_names.h"
#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/perf_estimator.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/table_workload.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_perf_test {

constexpr double kGib = 1024.0 * 1024 * 1024;

void ExpectSame(double expected, double actual, const std::string& what) {
  EXPECT_LE(std::abs(actual - expected), 1e-12 * std::abs(expected))
      << what << ": expected " << expected << ", got " << actual;
}

// The one option of table 0 under that type and kernel.
ShardingOption OptionOf(PlannerInput input, Sharding sharding, const std::string& kernel) {
  Allow(&input, 0, {sharding}, {kernel});
  const RankTopology topology = BuildRankTopology(input).value();
  const auto loads = BuildTableWorkloads(input, topology.ranks);
  const auto pins = PinnedRanks(input, topology);
  const auto space = EnumerateOptions(input, topology, loads.value(), pins.value());
  EXPECT_TRUE(space.ok()) << space.error().message;
  EXPECT_EQ(space.value()[0].size(), 1u);
  return space.value()[0][0];
}

struct Golden {
  Sharding sharding;
  const char* kernel;
  TablePerf perf;
};

void ExpectGoldens(const PlannerInput& input, const std::vector<Golden>& goldens) {
  for (const Golden& golden : goldens) {
    const std::string what = absl::StrCat(PlanWord(golden.sharding), " ", golden.kernel);
    const TablePerf perf = OptionOf(input, golden.sharding, golden.kernel).perf;
    ExpectSame(golden.perf.forward_compute_ms, perf.forward_compute_ms, what + " forward");
    ExpectSame(golden.perf.forward_comms_ms, perf.forward_comms_ms, what + " forward comms");
    ExpectSame(golden.perf.backward_compute_ms, perf.backward_compute_ms, what + " backward");
    ExpectSame(golden.perf.backward_comms_ms, perf.backward_comms_ms, what + " backward comms");
    ExpectSame(golden.perf.prefetch_ms, perf.prefetch_ms, what + " prefetch");
  }
}

// Forward compute, forward comms, backward compute, backward comms.
TablePerf Perf(double fwd, double fwd_comms, double bwd, double bwd_comms) {
  return {.forward_compute_ms = fwd,
          .forward_comms_ms = fwd_comms,
          .backward_compute_ms = bwd,
          .backward_comms_ms = bwd_comms};
}

constexpr double kComms = 6.357828776041667e-05;

// 100 x 10 on two ranks of one host.
PlannerInput OneTable() {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  AddTable(&input, 100, 10);
  return input;
}

// The goldens of one table; `comms` and `extra` as the bandwidths of the test have it.
std::vector<Golden> OneTableGoldens(double comms, double data_parallel, double rw, double rw_uvm,
                                    double rw_caching) {
  std::vector<Golden> goldens = {
      {Sharding::kDataParallel, "dense",
       Perf(9.356002212235228e-05, 0, 0.00018712004424470456, data_parallel)}};
  for (const Sharding sharding :
       {Sharding::kTableWise, Sharding::kColumnWise, Sharding::kTableColumnWise}) {
    goldens.push_back(
        {sharding, "fused", Perf(0.000327460077428233, comms, 0.000654920154856466, comms)});
    goldens.push_back(
        {sharding, "fused_uvm", Perf(0.09179115295410156, comms, 0.18358230590820312, comms)});
    goldens.push_back({sharding, "fused_uvm_caching",
                       Perf(0.01432837509527439, comms, 0.02865675019054878, comms)});
  }
  for (const Sharding sharding : {Sharding::kRowWise, Sharding::kTableRowWise, Sharding::kGrid}) {
    goldens.push_back(
        {sharding, "fused", Perf(6.804365245261984e-05, comms, 0.0001360873049052397, rw)});
    goldens.push_back(
        {sharding, "fused_uvm", Perf(0.019073486328125, comms, 0.03814697265625, rw_uvm)});
    goldens.push_back({sharding, "fused_uvm_caching",
                       Perf(0.0029773246951219513, comms, 0.0059546493902439025, rw_caching)});
  }
  return goldens;
}

TEST(TorchrecPerfTest, GoldensOfOneTable) {
  ExpectGoldens(OneTable(), OneTableGoldens(kComms, 0.000225593945387348, 0.00016798276699240525,
                                            0.029329458872477215, 0.004631910866838161));
}

// TorchRec's test_1_table_perf_with_fp8_comm: a reduce-scatter takes 2 bytes an element instead.
TEST(TorchrecPerfTest, GoldensOfFp8OnTheWire) {
  PlannerInput input = OneTable();
  input.options.torchrec.forward_wire = input.options.torchrec.backward_wire = TorchrecWire::kFp8;
  const auto expect = [&](double total, std::vector<Sharding> types, const std::string& kernel) {
    for (const Sharding sharding : types) {
      const std::string what = absl::StrCat(PlanWord(sharding), " ", kernel);
      ExpectSame(total, TotalMs(OptionOf(input, sharding, kernel).perf), what);
    }
  };
  const std::vector<Sharding> any_rank = {Sharding::kTableWise, Sharding::kColumnWise,
                                          Sharding::kTableColumnWise};
  const std::vector<Sharding> by_rows = {Sharding::kRowWise, Sharding::kTableRowWise,
                                         Sharding::kGrid};
  expect(0.0005062740117544049, {Sharding::kDataParallel}, "dense");
  expect(0.000846718200207288, any_rank, "fused");
  expect(0.22846659024556476, any_rank, "fused_uvm");
  expect(0.03568990443780169, any_rank, "fused_uvm_caching");
  expect(0.0002561205605599394, by_rows, "fused");
  expect(0.05403558413187663, by_rows, "fused_uvm");
  expect(0.008488476760988312, by_rows, "fused_uvm_caching");
}

TEST(TorchrecPerfTest, WiresOfEachDirection) {
  PlannerInput input = OneTable();
  const TablePerf own = OptionOf(input, Sharding::kTableWise, "fused").perf;
  const TablePerf rows = OptionOf(input, Sharding::kRowWise, "fused").perf;
  // Nothing changes where fp32 is named for both: there it is the table's own type.
  input.tables[0].weight = PlannerWeight::kFp16;
  const TablePerf halves = OptionOf(input, Sharding::kTableWise, "fused").perf;
  ExpectSame(own.forward_comms_ms / 2, halves.forward_comms_ms, "fp16 as the table");
  input.options.torchrec.backward_wire = TorchrecWire::kInt8;
  const TablePerf wires = OptionOf(input, Sharding::kTableWise, "fused").perf;
  ExpectSame(own.forward_comms_ms, wires.forward_comms_ms, "fp32 forward");
  ExpectSame(own.backward_comms_ms / 4, wires.backward_comms_ms, "int8 backward");
  input.tables[0].weight = PlannerWeight::kFp32;
  input.options.torchrec.backward_wire = TorchrecWire::kMx4;
  ExpectSame(rows.backward_comms_ms / 2,
             OptionOf(input, Sharding::kRowWise, "fused").perf.backward_comms_ms,
             "mx4 in a reduce-scatter");
  // Vectors of unpooled tables are not summed, and a reduce-scatter of them is none.
  input.tables[0].combiner = PlannerCombiner::kNone;
  input.options.torchrec = {};
  const TablePerf sequence = OptionOf(input, Sharding::kRowWise, "fused").perf;
  input.options.torchrec.backward_wire = TorchrecWire::kMx4;
  ExpectSame(sequence.backward_comms_ms / 4,
             OptionOf(input, Sharding::kRowWise, "fused").perf.backward_comms_ms,
             "mx4 in an all-to-all");
}

TEST(TorchrecPerfTest, GoldensWithOtherBandwidths) {
  PlannerInput input = OneTable();
  input.topology.bandwidth.inter_host = 40 * kGib / 1000;
  input.topology.bandwidth.intra_host = 300 * kGib / 1000;
  ExpectGoldens(input,
                OneTableGoldens(kComms * 2, 0.00012314846217964537, 0.00016798276699240525 + kComms,
                                0.02939303716023763, 0.004695489154598577));
}

TEST(TorchrecPerfTest, NoHostNamedIsOneHost) {
  PlannerInput input = OneTable();
  for (InputServer& server : input.topology.servers) server.host = server.name;
  ExpectGoldens(input, {{Sharding::kTableWise, "fused",
                         Perf(0.000327460077428233, kComms, 0.000654920154856466, kComms)}});
  EXPECT_EQ(BuildRankTopology(input).value().ranks_per_host, 2u);
}

struct TotalGolden {
  Sharding sharding;
  const char* kernel;
  double total_ms;
};

TEST(TorchrecPerfTest, GoldensOfUnpooledTables) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  AddTable(&input, 256, 32);
  input.tables[0].combiner = PlannerCombiner::kNone;
  const std::vector<TotalGolden> goldens = {
      {Sharding::kDataParallel, "dense", 0.0026901057997143255},
      {Sharding::kTableWise, "fused", 0.001880471390093715},
      {Sharding::kTableWise, "fused_uvm", 0.41346708933512366},
      {Sharding::kTableWise, "fused_uvm_caching", 0.06488458897040142},
      {Sharding::kColumnWise, "fused", 0.001880471390093715},
      {Sharding::kColumnWise, "fused_uvm", 0.41346708933512366},
      {Sharding::kColumnWise, "fused_uvm_caching", 0.06488458897040142},
      {Sharding::kRowWise, "fused", 0.0007915177871551004},
      {Sharding::kRowWise, "fused_uvm", 0.16504605611165366},
      {Sharding::kRowWise, "fused_uvm_caching", 0.025934979198424798},
  };
  for (const TotalGolden& golden : goldens) {
    ExpectSame(golden.total_ms, OptionOf(input, golden.sharding, golden.kernel).shard_ms,
               absl::StrCat(PlanWord(golden.sharding), " ", golden.kernel));
  }
}

TEST(TorchrecPerfTest, GoldensOfQuantisedInference) {
  PlannerInput input = OneTable();
  input.options.reserve.kind = ReserveKind::kInference;
  const std::vector<TotalGolden> goldens = {
      {Sharding::kTableWise, "quant", 0.0001296231579222408},
      {Sharding::kTableWise, "quant_uvm", 0.029231707255045574},
      {Sharding::kTableWise, "quant_uvm_caching", 0.004584459754509654},
      {Sharding::kRowWise, "quant", 5.5200413052187844e-05},
      {Sharding::kRowWise, "quant_uvm", 0.008370081583658854},
      {Sharding::kRowWise, "quant_uvm_caching", 0.0013280108692200203},
      {Sharding::kColumnWise, "quant", 0.0001296231579222408},
      {Sharding::kColumnWise, "quant_uvm", 0.029231707255045574},
      {Sharding::kColumnWise, "quant_uvm_caching", 0.004584459754509654},
  };
  for (const TotalGolden& golden : goldens) {
    ExpectSame(golden.total_ms, OptionOf(input, golden.sharding, golden.kernel).shard_ms,
               absl::StrCat(PlanWord(golden.sharding), " ", golden.kernel));
  }
}

// There: cache statistics with 200,000 expected lookups, a miss rate of 0.1 and a load factor of
// 0.1; here the hotness says that a tenth of the rows gets nine tenths of the accesses.
TEST(TorchrecPerfTest, GoldensOfPrefetch) {
  PlannerInput input = OneTable();
  input.tables[0].reads_per_step = 200000;
  input.tables[0].hotness = {{.rows = 0.05, .accesses = 0.8}, {.rows = 0.1, .accesses = 0.9}};
  ConstraintOf(&input, 0).cache_load_factor = 0.1;
  for (const Sharding sharding :
       {Sharding::kTableWise, Sharding::kColumnWise, Sharding::kTableColumnWise}) {
    ExpectSame(0.023283064365386963,
               OptionOf(input, sharding, "fused_uvm_caching").perf.prefetch_ms, "whole rows");
    EXPECT_EQ(OptionOf(input, sharding, "fused").perf.prefetch_ms, 0);
  }
  for (const Sharding sharding : {Sharding::kRowWise, Sharding::kTableRowWise, Sharding::kGrid}) {
    ExpectSame(0.011641532182693481,
               OptionOf(input, sharding, "fused_uvm_caching").perf.prefetch_ms, "halved rows");
  }
  // Without statistics, or without a load factor, nothing is known of misses.
  ConstraintOf(&input, 0).cache_load_factor.reset();
  EXPECT_EQ(OptionOf(input, Sharding::kTableWise, "fused_uvm_caching").perf.prefetch_ms, 0);
}

// A cache of the rows between two measured points, and past the last.
TEST(TorchrecPerfTest, MissesBetweenMeasuredPoints) {
  PlannerInput input = OneTable();
  input.tables[0].reads_per_step = 1000;
  input.tables[0].hotness = {{.rows = 0.1, .accesses = 0.5}, {.rows = 0.3, .accesses = 0.9}};
  const auto misses = [&](double load_factor) {
    ConstraintOf(&input, 0).cache_load_factor = load_factor;
    return BuildTableWorkloads(input, 2).value()[0].cache_misses;
  };
  EXPECT_NEAR(misses(0.05), 750, 1e-9);
  EXPECT_NEAR(misses(0.2), 300, 1e-9);
  EXPECT_NEAR(misses(0.65), 50, 1e-9);
  EXPECT_NEAR(misses(1.0), 0, 1e-9);
}

// Weighted ids are read twice as wide, and the gradient of their weights costs 1.1 forwards.
TEST(TorchrecPerfTest, WeightedFeatures) {
  PlannerInput input = OneTable();
  const TablePerf plain = OptionOf(input, Sharding::kTableWise, "fused").perf;
  input.features[0].weighted = true;
  const TablePerf weighted = OptionOf(input, Sharding::kTableWise, "fused").perf;
  // 512 ids x 2 ranks x 8 bytes more, at the penalty of narrow rows.
  ExpectSame(plain.forward_compute_ms + 8192 * 1.75 / (897 * kGib / 1000),
             weighted.forward_compute_ms, "forward");
  ExpectSame(weighted.forward_compute_ms * 3.1, weighted.backward_compute_ms, "backward");
  EXPECT_EQ(plain.forward_comms_ms, weighted.forward_comms_ms);
}

TEST(TorchrecPerfTest, WideRowsPayNoPenalty) {
  const auto forward = [](uint32_t dim) {
    PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
    AddTable(&input, 100, dim);
    return OptionOf(input, Sharding::kTableWise, "fused").perf.forward_compute_ms;
  };
  const auto bytes = [](double dim) { return (8192 + 2 * 1024 * dim * 4) / (897 * kGib / 1000); };
  ExpectSame(bytes(63) * 1.75, forward(63), "63");
  ExpectSame(bytes(64) * 1.15, forward(64), "64");
  ExpectSame(bytes(127) * 1.15, forward(127), "127");
  ExpectSame(bytes(128), forward(128), "128");
}

// Several hosts: the second term of table_row_wise, and the doubled all-reduce beyond two hosts.
TEST(TorchrecPerfTest, SeveralHosts) {
  PlannerInput input = ServersOf(3, 2, PlannerDevice::kCuda);
  AddTable(&input, 100, 16);
  const double intra = 600 * kGib / 1000;
  const double inter = 12.5 * kGib / 1000;
  const double hbm = 897 * kGib / 1000;
  const TablePerf twrw = OptionOf(input, Sharding::kTableRowWise, "fused").perf;
  const double written = 512.0 * 6 * 16 * 4;
  ExpectSame(written / intra + 512.0 * 3 * 16 * 4 / inter, twrw.forward_comms_ms, "twrw");
  ExpectSame(twrw.forward_comms_ms + written * 2.455 / hbm, twrw.backward_comms_ms, "twrw");
  const TablePerf rw = OptionOf(input, Sharding::kRowWise, "fused").perf;
  ExpectSame(written / inter, rw.forward_comms_ms, "rw");
  const TablePerf dp = OptionOf(input, Sharding::kDataParallel, "dense").perf;
  const double table = 100.0 * 16 * 4;
  ExpectSame(2 * table * 3 / 2 / (inter * 2) + table * 9.22 / (hbm / 2), dp.backward_comms_ms,
             "dp");
}

TEST(TorchrecPerfTest, ListsOfAConstraintStandForFeatures) {
  PlannerInput input = OneTable();
  TableConstraint& constraint = ConstraintOf(&input, 0);
  constraint.pooling_factors = {2, 3};
  constraint.num_poolings = {1, 4};
  constraint.batch_sizes = {10, 20};
  const TableWorkload load = BuildTableWorkloads(input, 2).value()[0];
  EXPECT_EQ(load.ids, 2 * 1 * 10 + 3 * 4 * 20);
  EXPECT_EQ(load.poolings, 1 * 10 + 4 * 20);
  EXPECT_EQ(load.ids_reserved, 2 * 10 + 3 * 20);
  constraint.batch_sizes = {10};
  const auto refused = BuildTableWorkloads(input, 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, PlanErrorKind::kInput);
  EXPECT_EQ(refused.error().table, "table_0");
}

TEST(TorchrecPerfTest, KernelBandwidths) {
  const MemoryBandwidth memory = {.hbm = 1000, .ddr = 100, .hbm_to_ddr = 10};
  const auto cuda = [&](Kernel kernel, std::optional<double> ratio = std::nullopt) {
    return KernelBandwidth(PlannerDevice::kCuda, kernel, memory, ratio);
  };
  EXPECT_EQ(cuda(Kernel::kDense), 500);
  EXPECT_EQ(cuda(Kernel::kFused), 1000);
  EXPECT_EQ(cuda(Kernel::kFusedUvm), 1);
  EXPECT_EQ(cuda(Kernel::kFusedUvmCaching), (0.2 * 1000 + 0.8 * 10) / 10);
  EXPECT_EQ(cuda(Kernel::kQuantUvmCaching, 0.5), (0.5 * 1000 + 0.5 * 10) / 10);
  EXPECT_EQ(cuda(Kernel::kFusedUvmCaching, 0.0), 1);
  EXPECT_EQ(cuda(Kernel::kKeyValue), 10);
  EXPECT_EQ(KernelBandwidth(PlannerDevice::kCuda, Kernel::kFusedUvmCaching, memory, 0.5, true),
            1000);
  EXPECT_EQ(KernelBandwidth(PlannerDevice::kCuda, Kernel::kFusedUvm, memory, 0.5, true), 1);
  EXPECT_EQ(cuda(Kernel::kCustomized), std::nullopt);
  const auto cpu = [&](Kernel kernel) {
    return KernelBandwidth(PlannerDevice::kCpu, kernel, memory, std::nullopt);
  };
  EXPECT_EQ(cpu(Kernel::kDense), 50);
  EXPECT_EQ(cpu(Kernel::kFused), 100);
  EXPECT_EQ(cpu(Kernel::kQuant), 100);
  EXPECT_EQ(cpu(Kernel::kFusedUvm), std::nullopt);
}

}  // namespace torchrec_perf_test
}  // namespace hotbed::torchrec
