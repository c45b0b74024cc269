// A whole batch without a network: plan, gradient sums and scatter against a dumb twin over
// std::map.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "client/batch/batch_plan.h"
#include "client/batch/gradient_sum.h"
#include "client/batch/scatter.h"
#include "client/rows/row_convert.h"
#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace batch_test {

struct Batch {
  ClusterMapHolder map;
  std::vector<std::unique_ptr<TableHandle>> tables;
  std::vector<std::vector<uint64_t>> ids;  // by feature
  std::vector<FeatureIds> features;
};

void MakeTables(Random& random, Batch* batch) {
  MapUpdate update;
  update.plan_revision = 1;
  const uint32_t tables = 1 + static_cast<uint32_t>(random.Uniform(4));
  for (uint32_t id = 1; id <= tables; ++id) {
    TableSpec spec;
    spec.id = id;
    spec.name = "t" + std::to_string(id);
    spec.hashed = random.OneIn(2);
    spec.rows = 8 + random.Uniform(500);
    spec.dim = 1 + static_cast<uint32_t>(random.Uniform(40));
    const uint32_t ranges = 1 + static_cast<uint32_t>(random.Uniform(6));
    const uint64_t space = spec.hashed ? 65536 : spec.rows;
    if (random.OneIn(2)) {
      spec.column_slices = 1 + static_cast<uint32_t>(random.Uniform(std::min(spec.dim, 5u)));
    }
    const uint32_t shards = ranges * spec.column_slices;
    for (uint32_t s = 0; s < shards; ++s) {
      const uint32_t r = s % ranges;
      const uint32_t slice = s / ranges;
      ShardRecord record;
      record.shard = {id, s};
      record.range = {space * r / ranges, space * (r + 1) / ranges,
                      spec.dim * slice / spec.column_slices,
                      spec.dim * (slice + 1) / spec.column_slices};
      record.epoch = 1;
      update.shards.push_back(record);
    }
    update.tables.push_back(spec);
    batch->tables.push_back(std::make_unique<TableHandle>(nullptr, spec, shards));
  }
  batch->map.Apply(update);
}

void MakeFeatures(Random& random, Batch* batch) {
  batch->ids.resize(1 + random.Uniform(6));
  for (auto& ids : batch->ids) {
    const TableHandle* table = batch->tables[random.Uniform(batch->tables.size())].get();
    ids.resize(random.OneIn(5) ? 0 : random.Uniform(400));
    for (uint64_t& id : ids) id = random.Uniform(1 + random.Uniform(table->options().rows));
    batch->features.push_back({table, ids});
  }
}

class BatchTest : public testing::Test {
 protected:
  // The parts of the plan, some of them joined: a client gathers and scatters them in runs.
  std::vector<PlanPart> Runs(Random& random) const {
    std::vector<PlanPart> runs;
    for (const PlanPart& part : plan_.parts()) {
      if (runs.empty() || random.OneIn(4) || !runs.back().Extend(part)) runs.push_back(part);
    }
    return runs;
  }

  // Makes and plans new tables and features for each round.
  void Plan(Random& random, RowType type, uint64_t part_bytes) {
    batch_ = std::make_unique<Batch>();
    MakeTables(random, batch_.get());
    MakeFeatures(random, batch_.get());
    plan_.Build(batch_->features, *batch_->map.Get(), &deduper_, type, part_bytes);
  }

  std::unique_ptr<Batch> batch_;
  BatchPlan plan_;
  Deduper deduper_;
};

TEST_F(BatchTest, EachUniqueIdIsInOnePartOfEachSliceAndPartsKeepToTheirSize) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (int round = 0; round < 100; ++round) {
    const uint64_t part_bytes = 64 + random.Uniform(4000);
    Plan(random, RowType::kFp32, part_bytes);
    std::map<std::pair<TableId, uint64_t>, std::vector<uint32_t>> seen;  // times, by column
    uint64_t rows = 0;
    for (const PlanPart& part : plan_.parts()) {
      const TableHandle* table = plan_.group(part).table;
      ASSERT_GT(part.rows(), 0);
      const uint64_t bytes = part.rows() * (8ull + 4 * part.columns);
      EXPECT_TRUE(bytes <= part_bytes || part.rows() <= RowsPerNumber(part.columns));
      const ShardRange& range = batch_->map.Get()->Shard({table->id(), part.shard})->range;
      EXPECT_EQ(part.column_first, range.column_first);
      EXPECT_EQ(part.column_first + part.columns, range.column_limit);
      std::vector<uint64_t> ids(part.rows());
      plan_.GatherIds(part, ids.data());
      rows += part.rows();
      for (uint64_t id : ids) {
        const uint64_t position = table->options().hashed ? Mix64(id) : id;
        ASSERT_GE(position, range.first_position(table->options().hashed));
        ASSERT_LE(position, range.last_position(table->options().hashed));
        std::vector<uint32_t>& times = seen[{table->id(), id}];
        times.resize(table->dim());
        for (uint32_t c = 0; c < part.columns; ++c) ++times[part.column_first + c];
      }
    }
    std::map<std::pair<TableId, uint64_t>, std::vector<uint32_t>> expected;
    for (const FeatureIds& feature : batch_->features) {
      for (uint64_t id : feature.ids) {
        expected[{feature.table->id(), id}].assign(feature.table->dim(), 1);
      }
    }
    ASSERT_EQ(seen, expected);
    ASSERT_EQ(plan_.unique_rows(), expected.size());
    ASSERT_EQ(plan_.part_rows(), rows);
  }
}

TEST_F(BatchTest, JoinedPartsHaveTheRowsOfTheirPartsInOrder) {
  const TestSeed seed(8);
  Random random(seed.value());
  uint64_t joined = 0;
  for (int round = 0; round < 100; ++round) {
    Plan(random, RowType::kFp32, 64 + random.Uniform(4000));
    size_t next = 0;
    for (const PlanPart& run : Runs(random)) {
      std::vector<uint64_t> ids(run.rows());
      plan_.GatherIds(run, ids.data());
      uint64_t rows = 0;
      for (size_t parts = 0; rows < run.rows(); ++parts) {
        const PlanPart& part = plan_.parts()[next++];
        EXPECT_EQ(part.group, run.group);
        EXPECT_EQ(part.column_first, run.column_first);
        EXPECT_EQ(part.columns, run.columns);
        std::vector<uint64_t> own(part.rows());
        plan_.GatherIds(part, own.data());
        ASSERT_LE(rows + own.size(), ids.size());
        EXPECT_TRUE(std::equal(own.begin(), own.end(), ids.begin() + rows));
        rows += own.size();
        joined += parts > 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(next, plan_.parts().size());
  }
  EXPECT_GT(joined, 100u);
}

TEST_F(BatchTest, GradientsAreSummedInTheOrderOfTheInputToTheBit) {
  const TestSeed seed(6);
  Random random(seed.value());
  for (int round = 0; round < 60; ++round) {
    const RowType type = random.OneIn(2) ? RowType::kFp32 : RowType::kBf16;
    Plan(random, type, 64 + random.Uniform(4000));
    std::map<std::pair<TableId, uint64_t>, std::vector<float>> expected;
    std::vector<std::vector<float>> gradients;
    std::vector<PushFeature> pushed;
    for (const FeatureIds& feature : batch_->features) {
      const uint32_t dim = feature.table->dim();
      std::vector<float>& g = gradients.emplace_back(feature.ids.size() * dim);
      for (float& v : g) v = static_cast<float>(random.Double() - 0.5);
      for (size_t i = 0; i < feature.ids.size(); ++i) {
        std::vector<float>& sum = expected[{feature.table->id(), feature.ids[i]}];
        const bool first = sum.empty();
        sum.resize(dim);
        for (uint32_t d = 0; d < dim; ++d)
          sum[d] = first ? g[i * dim + d] : sum[d] + g[i * dim + d];
      }
    }
    for (size_t f = 0; f < gradients.size(); ++f) {
      pushed.push_back({batch_->features[f].table, batch_->features[f].ids, gradients[f].data()});
    }
    GradientSum sum(pushed, 1.0f, type);
    for (const PlanPart& part : Runs(random)) {
      const TableGroup& group = plan_.group(part);
      const uint32_t row_bytes = RowWireBytes(type, part.columns);
      std::vector<uint8_t> out(uint64_t{part.rows()} * row_bytes), row(row_bytes);
      ASSERT_EQ(sum.Gather(group, part, {}, out.data()), kNoIndex);
      std::vector<uint64_t> ids(part.rows());
      plan_.GatherIds(part, ids.data());
      for (uint32_t k = 0; k < part.rows(); ++k) {
        const std::vector<float>& want = expected[{group.table->id(), ids[k]}];
        ScalarRowConverters().from_floats[static_cast<int>(type)](want.data() + part.column_first,
                                                                  part.columns, row.data());
        ASSERT_EQ(0, std::memcmp(row.data(), out.data() + k * row_bytes, row_bytes));
      }
    }
  }
}

TEST_F(BatchTest, ScatterFillsEveryPlaceAndNoOther) {
  const TestSeed seed(7);
  Random random(seed.value());
  for (int round = 0; round < 100; ++round) {
    const RowType type = static_cast<RowType>(random.Uniform(3));
    Plan(random, type, 64 + random.Uniform(4000));
    const bool streaming = random.OneIn(2);
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<uint8_t>> exists;
    std::vector<ScatterTarget> targets;
    for (const FeatureIds& feature : batch_->features) {
      rows.emplace_back(feature.ids.size() * feature.table->dim() + 1, -7.0f);
      exists.emplace_back(feature.ids.size(), 9);
    }
    for (size_t f = 0; f < rows.size(); ++f) {
      targets.push_back(
          {reinterpret_cast<uint8_t*>(rows[f].data()), exists[f].data(), RowType::kFp32});
    }
    // The row of an id is the id, plus the column over 8: exact in every type here.
    const auto value = [](uint64_t id, uint32_t d) {
      return static_cast<float>(id % 16) + static_cast<float>(d % 8) / 8;
    };
    ClearExists(plan_, targets);
    std::vector<PlanPart> parts = Runs(random);
    for (size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[random.Uniform(i)]);
    for (const PlanPart& part : parts) {
      const TableGroup& group = plan_.group(part);
      const uint32_t columns = part.columns;
      std::vector<uint64_t> ids(part.rows());
      plan_.GatherIds(part, ids.data());
      std::vector<std::vector<uint8_t>> wire;
      std::vector<const uint8_t*> pointers;
      std::vector<uint8_t> flags;
      for (uint64_t id : ids) {
        std::vector<float> row(columns);
        for (uint32_t d = 0; d < columns; ++d) row[d] = value(id, part.column_first + d);
        wire.emplace_back(RowWireBytes(type, columns));
        ScalarRowConverters().from_floats[static_cast<int>(type)](row.data(), columns,
                                                                  wire.back().data());
        // One slice of a row may have it and another not: here only the slice of column 0 has it.
        const bool knows = columns == group.table->dim() || part.column_first == 0;
        flags.push_back(static_cast<uint8_t>(knows ? id % 2 : 0));
      }
      for (const auto& w : wire) pointers.push_back(w.data());
      Scatter({&group, &part, targets, type, pointers.data(), flags.data(), streaming});
    }
    for (size_t f = 0; f < rows.size(); ++f) {
      const FeatureIds& feature = batch_->features[f];
      const uint32_t dim = feature.table->dim();
      for (size_t i = 0; i < feature.ids.size(); ++i) {
        for (uint32_t d = 0; d < dim; ++d)
          ASSERT_EQ(rows[f][i * dim + d], value(feature.ids[i], d));
        ASSERT_EQ(exists[f][i], feature.ids[i] % 2);
      }
      ASSERT_EQ(rows[f].back(), -7.0f);
    }
  }
}

}  // namespace batch_test
}  // namespace hotbed
