#include "planner/cost/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "planner/cost/access_curve.h"
#include "planner/cost/plain_math.h"
#include "planner/cost/tier_load.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace cost_model_test {

TEST(PlainMath, IsTheCLibrarysToTheLastBits) {
  for (int i = 1; i < 20000; ++i) {
    const double x = i * 0.037;
    if (x < 690) {
      EXPECT_NEAR(PlainExp(-x) / std::exp(-x), 1, 1e-15) << x;
    }
    EXPECT_NEAR(PlainLog(x), std::log(x), 1e-15 * std::fabs(std::log(x)) + 1e-17);
    EXPECT_NEAR(PlainPower(x, -1.05) / std::pow(x, -1.05), 1, 1e-14);
  }
  EXPECT_EQ(PlainExp(-800), 0);
  EXPECT_NEAR(PlainExpMinusOne(-1e-10), std::expm1(-1e-10), 1e-25);
  EXPECT_NEAR(PlainExpMinusOne(-0.05), std::expm1(-0.05), 1e-17);
}

TEST(AccessCurve, HarmonicSumsAreTheSums) {
  for (const double s : {0.3, 0.99, 1.0, 1.05, 2.0, 4.0}) {
    double direct = 0;
    for (uint64_t rank = 200000; rank >= 1; --rank) {
      direct += std::pow(static_cast<double>(rank), -s);
    }
    EXPECT_NEAR(HarmonicSum(1, 200000, s) / direct, 1, 3e-9) << s;
  }
  EXPECT_EQ(HarmonicSum(5, 4, 1.0), 0);
}

TEST(AccessCurve, StrataTileTheRowsAndAddUpToAll) {
  InputTable table;
  for (const uint64_t rows :
       {uint64_t{1}, uint64_t{2}, uint64_t{17}, uint64_t{1000003}, uint64_t{1} << 62}) {
    for (int kind = 0; kind < 3; ++kind) {
      table.rows = rows;
      table.zipf = kind == 1 ? std::optional<double>(1.05) : std::nullopt;
      table.hotness.clear();
      if (kind == 2) table.hotness = {{0.0005, 0.857}, {0.001, 0.895}, {0.01, 0.957}};
      uint64_t next = 0;
      double mass = 0;
      for (const Stratum& stratum : AccessStrata(table)) {
        EXPECT_EQ(stratum.first, next);
        EXPECT_GT(stratum.limit, stratum.first);
        next = stratum.limit;
        mass += stratum.mass;
      }
      EXPECT_EQ(next, rows);
      EXPECT_NEAR(mass, 1, 1e-9);
    }
  }
}

// The header's claim about even accesses within a stratum.
TEST(AccessCurve, UnderstatesTheHottestRowsByLittle) {
  for (const double s : {0.8, 1.05, 1.2}) {
    InputTable table;
    table.rows = 1000;
    table.zipf = s;
    const std::vector<Stratum> strata = AccessStrata(table);
    double exact = 0;
    const double all = HarmonicSum(1, table.rows, s);
    double worst = 0;
    double before = 0;
    size_t at = 0;
    for (uint64_t x = 1; x <= table.rows; ++x) {
      exact += PlainPower(static_cast<double>(x), -s) / all;
      while (x > strata[at].limit) before += strata[at++].mass;
      const double part = static_cast<double>(x - strata[at].first) /
                          static_cast<double>(strata[at].limit - strata[at].first);
      const double even = before + strata[at].mass * part;
      worst = std::max(worst, exact - even);
      EXPECT_LE(even, exact + 1e-9);
    }
    EXPECT_LT(worst, 0.015) << s;
  }
}

TEST(AccessCurve, UniqueRowsAreAtMostTheRowsAndTheReads) {
  EXPECT_NEAR(UniqueRows({0, 10, 1.0}, 1e6), 10, 1e-9);
  EXPECT_NEAR(UniqueRows({0, 1000000000, 1.0}, 100), 100, 1e-4);
  EXPECT_NEAR(UniqueRows({0, 100, 0.5}, 200), 100 * (1 - std::exp(-1.0)), 1e-9);
}

// docs/measurements.md: a gather of 256-byte rows takes 50 ns, row-wise Adagrad 85 ns.
TEST(CostModel, AgreesWithWhatWasMeasured) {
  PlannerInput input = EqualServers(2, 1, 0);
  AddTable(input, "t", 1000, 64, 100);
  const CostModel model(input);
  const RowCost cost = model.Row(input.tables[0], 64, Role::kPrimary, 1, 1);
  EXPECT_NEAR(cost.forward_compute, 50, 0.5);
  EXPECT_NEAR(cost.backward_compute, 85, 0.5);
  EXPECT_NEAR(cost.forward_comms, 264 / 1.3, 0.1);
  EXPECT_EQ(cost.host_extra, 0);
  EXPECT_GT(cost.spill_extra, 3000);
}

TEST(CostModel, TheTopologysBandwidthGoesFirst) {
  PlannerInput input = EqualServers(2, 1, 0);
  AddTable(input, "t", 1000, 64, 100);
  input.topology.bandwidth.inter_host = 2.6e6;
  const RowCost twice = CostModel(input).Row(input.tables[0], 64, Role::kPrimary, 1, 1);
  EXPECT_NEAR(twice.forward_comms, 264 / 2.6, 0.1);
  input.constants = CostConstants{};
  input.constants->gather_row_ns = 130;
  EXPECT_NEAR(CostModel(input).Row(input.tables[0], 64, Role::kPrimary, 1, 1).forward_compute, 150,
              0.5);
}

TEST(CostModel, ReplicasCostUpdatesAndThePrimaryTheirLog) {
  PlannerInput input = EqualServers(2, 1, 0);
  AddTable(input, "t", 1000, 64, 100);
  const CostModel model(input);
  const RowCost alone = model.Row(input.tables[0], 64, Role::kPrimary, 1, 1);
  const RowCost primary = model.Row(input.tables[0], 64, Role::kPrimary, 2, 1);
  const RowCost backup = model.Row(input.tables[0], 64, Role::kBackup, 2, 0);
  EXPECT_NEAR(primary.backward_comms, 2 * alone.backward_comms, 1e-9);
  EXPECT_EQ(backup.forward_compute, 0);
  EXPECT_EQ(backup.forward_comms, 0);
  EXPECT_EQ(backup.backward_compute, alone.backward_compute);
}

TEST(CostModel, ReadsComeFromTheFeaturesUnlessTheTableSays) {
  PlannerInput input = EqualServers(1, 1, 0);
  AddTable(input, "a", 10, 4, 0);
  AddTable(input, "b", 10, 4, 77);
  input.features[0].pooling_factor = 3;
  input.features.push_back({"a2", 0, 0.5, false});
  EXPECT_EQ(AllReadsPerStep(input), (std::vector<double>{512 * 3.5, 77}));
  TableConstraint constraint;
  constraint.table = 0;
  constraint.batch_sizes = {100};
  constraint.num_poolings = {2};
  input.options.constraints = {constraint};
  EXPECT_EQ(AllReadsPerStep(input)[0], 100 * 2 * 3 + 512 * 0.5);
}

TEST(TierLoad, TheHottestStayInMemory) {
  TierLoad load;
  const HeatEntry hot{HeatClass(8.0), 100, 0, 1000};
  const HeatEntry cold{HeatClass(0.01), 100, 0, 10};
  load.Change(hot, 1, 1);
  load.Change(cold, 1, 1);
  EXPECT_EQ(load.PenaltyTicks({0, 200, 0}), 0);
  EXPECT_EQ(load.PenaltyTicks({0, 100, 100}), 10);
  EXPECT_EQ(load.PenaltyTicks({0, 50, 150}), 510);
  EXPECT_EQ(load.PenaltyTicks({0, 0, 200}), 1010);
  load.Change(hot, 1, -1);
  EXPECT_EQ(load.PenaltyTicks({0, 50, 150}), 5);
}

TEST(TierLoad, DeviceBeforeHostBeforeSpill) {
  TierLoad load;
  load.Change({HeatClass(8.0), 100, 7, 1000}, 1, 1);
  EXPECT_EQ(load.PenaltyTicks({100, 0, 0}), 0);
  EXPECT_EQ(load.PenaltyTicks({0, 100, 0}), 7);
  EXPECT_EQ(load.PenaltyTicks({0, 0, 100}), 1007);
  const TierBytes tiers = FillTiers(250, {100, 100, 100});
  EXPECT_EQ(tiers.device, 100u);
  EXPECT_EQ(tiers.host, 100u);
  EXPECT_EQ(tiers.spill, 50u);
}

}  // namespace cost_model_test
}  // namespace hotbed
