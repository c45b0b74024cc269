// Pooled features without a network: planned, answered part by part in any order as servers do,
// joined, and compared with bags that plain loops pool.
#include "client/batch/pooled_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "client/batch/pooled_join.h"
#include "client/batch/resolve_ids.h"
#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/pool_twin.h"

namespace hotbed {
namespace pooled_plan_test {

float Weight(uint64_t id, uint32_t column) {
  const uint64_t bits = Mix64(id * 131 + column);
  // Few values, so that maxima meet equals.
  return bits % 5 == 0 ? 0.25f : static_cast<float>(bits % 4096) / 1024.0f - 2.0f;
}

class PooledPlanTest : public testing::Test {
 protected:
  struct Feature {
    std::vector<uint64_t> ids;
    std::vector<uint8_t> skip;
    std::vector<uint32_t> lengths;
    std::vector<float> weights, rows;
    std::vector<uint32_t> arg_max;
    std::vector<uint8_t> exists;
    PooledFeature asked;
  };

  void MakeTable(Random& random) {
    MapUpdate update;
    update.plan_revision = 1;
    TableSpec spec;
    spec.id = 1;
    spec.name = "t";
    spec.hashed = random.OneIn(2);
    spec.rows = 8 + random.Uniform(500);
    spec.dim = 1 + static_cast<uint32_t>(random.Uniform(40));
    spec.column_slices = 1 + static_cast<uint32_t>(random.Uniform(std::min(spec.dim, 4u)));
    const uint32_t ranges = 1 + static_cast<uint32_t>(random.Uniform(6));
    const uint64_t space = spec.hashed ? 65536 : spec.rows;
    for (uint32_t s = 0; s < ranges * spec.column_slices; ++s) {
      const uint32_t r = s % ranges;
      const uint32_t slice = s / ranges;
      ShardRecord record;
      record.shard = {1, s};
      record.range = {space * r / ranges, space * (r + 1) / ranges,
                      spec.dim * slice / spec.column_slices,
                      spec.dim * (slice + 1) / spec.column_slices};
      record.epoch = 1;
      update.shards.push_back(record);
    }
    update.tables.push_back(spec);
    holder_ = std::make_unique<ClusterMapHolder>();
    holder_->Apply(update);
    map_ = holder_->Get();
    route_ = map_->Table(1);
    table_ = std::make_unique<TableHandle>(nullptr, spec, ranges * spec.column_slices);
  }

  void MakeFeature(Random& random, Feature* f) {
    const uint64_t ids_of = 1 + random.Uniform(table_->options().rows);
    const bool skips = random.OneIn(2);
    for (uint64_t b = 1 + random.Uniform(30); b > 0; --b) {
      f->lengths.push_back(random.OneIn(4) ? 0 : static_cast<uint32_t>(random.Uniform(12)));
      for (uint32_t k = f->lengths.back(); k > 0; --k) {
        f->skip.push_back(skips && random.OneIn(4) ? 1 + random.Uniform(2) : 0);
        // A skipped id may be outside the table.
        f->ids.push_back(f->skip.back() != 0 ? ~uint64_t{0} : random.Uniform(ids_of));
      }
    }
    PooledFeature& asked = f->asked;
    asked.table = table_.get();
    asked.pooling = static_cast<BagPooling>(random.Uniform(3));
    if (asked.pooling != BagPooling::kMax && random.OneIn(2)) {
      for (size_t i = 0; i < f->ids.size(); ++i) {
        f->weights.push_back(static_cast<float>(random.Double() + 0.1));
      }
      asked.weights = f->weights.data();
    }
    asked.row_stride = table_->dim() + random.Uniform(3);
    f->rows.assign(asked.row_stride * f->lengths.size(), -7.0f);
    f->arg_max.assign(f->lengths.size() * table_->dim(), 77);
    f->exists.assign(f->ids.size(), 9);
    asked.ids = f->ids;
    asked.skip = skips ? f->skip.data() : nullptr;
    asked.lengths = f->lengths;
    asked.rows = f->rows.data();
    if (asked.pooling == BagPooling::kMax && random.OneIn(2)) asked.arg_max = f->arg_max.data();
    asked.exists = f->exists.data();
  }

  uint32_t RangeOf(uint64_t id) const {
    return route_->locator.Find(table_->options().hashed ? Mix64(id) : id);
  }
  std::vector<float> Row(uint64_t id, uint32_t first, uint32_t limit) const {
    std::vector<float> row;
    for (uint32_t c = first; c < limit; ++c) row.push_back(Weight(id, c));
    return row;
  }

  // A server's answer.
  void Answer(const PooledPart& part) {
    const PooledFeature& feature = plan_.features()[part.feature];
    const ShardRange& range = route_->shards[part.shard].range;
    ASSERT_EQ(range.column_first, part.column_first);
    ASSERT_EQ(range.column_limit - range.column_first, part.columns);
    std::vector<std::vector<float>> answers;
    std::string args, flags;
    uint64_t at = part.id_at;
    uint64_t weight_at = part.weight_at;
    for (uint32_t p = part.begin; p < part.end; ++p) {
      std::vector<std::vector<float>> rows;
      std::vector<float> weights;
      ASSERT_GT(plan_.lengths()[p], 0u);
      for (uint32_t k = 0; k < plan_.lengths()[p]; ++k, ++at) {
        const uint64_t id = plan_.ids()[at];
        ASSERT_EQ(RangeOf(id), part.shard % route_->ranges());
        rows.push_back(Row(id, range.column_first, range.column_limit));
        if (feature.weights != nullptr) weights.push_back(plan_.weights()[weight_at++]);
        flags.push_back(id % 2);
      }
      const auto pooling =
          feature.pooling == BagPooling::kMax ? RowPooling::kMax : RowPooling::kSum;
      const PooledBag bag = PoolByHand(pooling, part.columns, rows, weights);
      answers.push_back(bag.row);
      args.append(reinterpret_cast<const char*>(bag.arg_max.data()), 4 * part.columns);
    }
    ASSERT_EQ(at, part.id_at + part.ids);
    std::vector<const uint8_t*> pointers;
    for (const auto& row : answers) {
      pointers.push_back(reinterpret_cast<const uint8_t*>(row.data()));
    }
    PooledJoin::Rows rows;
    rows.rows = pointers.data();
    if (feature.arg_max != nullptr) rows.arg_max = reinterpret_cast<const uint8_t*>(args.data());
    rows.flags = reinterpret_cast<const uint8_t*>(flags.data());
    ASSERT_TRUE(join_.Take(plan_, part, rows));
  }

  // By range, then joined.
  void Check(const Feature& f) const {
    const uint32_t dim = table_->dim();
    size_t next = 0;
    for (uint32_t b = 0; b < f.lengths.size(); ++b) {
      std::vector<std::vector<std::vector<float>>> rows(route_->ranges());
      std::vector<std::vector<float>> weights(route_->ranges());
      std::vector<std::vector<uint32_t>> places(route_->ranges());
      float number = 0.0f;
      for (uint32_t k = 0; k < f.lengths[b]; ++k, ++next) {
        const bool skipped = f.asked.skip != nullptr && f.skip[next] != 0;
        if (!skipped || f.skip[next] == kIdZeroed) {
          number += f.asked.weights != nullptr ? f.weights[next] : 1.0f;
        }
        EXPECT_EQ(f.exists[next], skipped ? 0 : f.ids[next] % 2);
        if (skipped) continue;
        const uint32_t range = RangeOf(f.ids[next]);
        rows[range].push_back(Row(f.ids[next], 0, dim));
        if (f.asked.weights != nullptr) weights[range].push_back(f.weights[next]);
        places[range].push_back(k);
      }
      std::vector<float> want(dim, 0.0f);
      std::vector<uint32_t> args(dim, kArgMaxOfNothing);
      bool begun = false;
      for (uint32_t r = 0; r < route_->ranges(); ++r) {
        if (rows[r].empty()) continue;
        const bool max = f.asked.pooling == BagPooling::kMax;
        const PooledBag bag =
            PoolByHand(max ? RowPooling::kMax : RowPooling::kSum, dim, rows[r], weights[r]);
        for (uint32_t i = 0; i < dim; ++i) {
          const uint32_t place = max ? places[r][bag.arg_max[i]] : 0;
          if (!begun) {
            want[i] = bag.row[i];
            args[i] = place;
          } else if (!max) {
            want[i] += bag.row[i];
          } else if (bag.row[i] > want[i] || (bag.row[i] == want[i] && place < args[i])) {
            want[i] = bag.row[i];
            args[i] = place;
          }
        }
        begun = true;
      }
      if (f.asked.pooling == BagPooling::kMean && number > 0) {
        for (float& w : want) w /= number;
      }
      const float* const row = f.rows.data() + f.asked.row_stride * b;
      ASSERT_EQ(std::vector<float>(row, row + dim), want) << "bag " << b;
      for (uint64_t i = dim; i < f.asked.row_stride; ++i) ASSERT_EQ(row[i], -7.0f);
      if (f.asked.arg_max == nullptr) continue;
      const uint32_t* const arg = f.arg_max.data() + size_t{dim} * b;
      ASSERT_EQ(std::vector<uint32_t>(arg, arg + dim), args) << "bag " << b;
    }
  }

  std::unique_ptr<ClusterMapHolder> holder_;
  ClusterMapPtr map_;
  const TableRoute* route_ = nullptr;
  std::unique_ptr<TableHandle> table_;
  PooledPlan plan_;  // used for all rounds
  PooledJoin join_;
};

TEST_F(PooledPlanTest, AnyTableAnyBagsAnyOrderOfAnswers) {
  const TestSeed seed(31);
  Random random(seed.value());
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    MakeTable(random);
    std::vector<Feature> features(1 + random.Uniform(3));
    const uint64_t part_bytes = 600 + random.Uniform(20000);
    plan_.Clear();
    for (Feature& f : features) {
      MakeFeature(random, &f);
      plan_.Add(f.asked, *route_, RowType::kFp32, part_bytes);
    }
    join_.Begin(plan_);
    std::vector<uint32_t> order(plan_.parts().size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Uniform(i)]);
    for (const uint32_t p : order) {
      const PooledPart& part = plan_.parts()[p];
      EXPECT_LE(plan_.BytesOf(part, RowType::kFp32), part_bytes);
      Answer(part);
    }
    join_.Finish(plan_);
    for (const Feature& f : features) Check(f);
  }
}

// A bag of more ids than a message carries: its pieces are joined in their order.
TEST_F(PooledPlanTest, ABagLargerThanAMessage) {
  const TestSeed seed(32);
  Random random(seed.value());
  MakeTable(random);
  Feature f;
  f.lengths = {1000, 2};
  for (int i = 0; i < 1002; ++i) f.ids.push_back(random.Uniform(8));
  f.rows.resize(2 * table_->dim());
  f.arg_max.resize(2 * table_->dim());
  f.asked.table = table_.get();
  f.asked.ids = f.ids;
  f.asked.lengths = f.lengths;
  f.asked.rows = f.rows.data();
  f.asked.row_stride = table_->dim();
  f.asked.pooling = BagPooling::kMax;  // which is exact however the bag is cut
  f.asked.arg_max = f.arg_max.data();
  plan_.Clear();
  plan_.Add(f.asked, *route_, RowType::kFp32, 1024);
  EXPECT_GT(plan_.parts().size(), 8u);
  join_.Begin(plan_);
  for (const PooledPart& part : plan_.parts()) {
    EXPECT_LE(plan_.BytesOf(part, RowType::kFp32), 1024u);
    Answer(part);
  }
  join_.Finish(plan_);
  f.exists.assign(f.ids.size(), 0);
  for (size_t i = 0; i < f.ids.size(); ++i) f.exists[i] = f.ids[i] % 2;  // not requested here
  Check(f);
}

TEST_F(PooledPlanTest, AnArgMaxOutsideOfItsBagIsRefused) {
  const TestSeed seed(33);
  Random random(seed.value());
  MakeTable(random);
  const std::vector<uint64_t> ids = {1, 1};
  const std::vector<uint32_t> lengths = {2};
  std::vector<float> out(table_->dim());
  std::vector<uint32_t> arg(table_->dim());
  PooledFeature asked;
  asked.table = table_.get();
  asked.ids = ids;
  asked.lengths = lengths;
  asked.rows = out.data();
  asked.row_stride = table_->dim();
  asked.pooling = BagPooling::kMax;
  asked.arg_max = arg.data();
  plan_.Clear();
  plan_.Add(asked, *route_, RowType::kFp32, 1 << 20);
  join_.Begin(plan_);
  const PooledPart& part = plan_.parts()[0];
  std::vector<uint32_t> answered(part.columns, 1);
  const uint8_t* row = reinterpret_cast<const uint8_t*>(out.data());
  PooledJoin::Rows rows;
  rows.rows = &row;
  rows.arg_max = reinterpret_cast<const uint8_t*>(answered.data());
  EXPECT_TRUE(join_.Take(plan_, part, rows));
  answered.back() = 2;
  EXPECT_FALSE(join_.Take(plan_, part, rows));
}

}  // namespace pooled_plan_test
}  // namespace hotbed
