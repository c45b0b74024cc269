// Pooled pulls of the store against bags written out plainly, to the bit: with every budget, rows
// in every tier and nowhere, bags longer than a window.
#include <gtest/gtest.h>

#include <set>

#include "tests/kernels/kernel_rows.h"
#include "tests/kernels/pool_twin.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace pooled_pull_test {

struct PoolCase {
  bool hashed;
  WeightType weight_type;
  int budget_rows;              // 0: everything fits
  uint32_t device_buckets = 0;  // 0: no device
};

class StorePoolTest : public StoreFixture, public ::testing::WithParamInterface<PoolCase> {
 protected:
  struct Asked {
    std::vector<uint64_t> ids;
    std::vector<uint32_t> lengths;
    std::vector<float> weights;
    RowPooling pooling = RowPooling::kSum;
    RowType type = RowType::kFp32;
    bool arg_max = false;
  };
  struct Answer {
    std::vector<uint8_t> rows, flags, arg_max;
    std::unique_ptr<PinnedRows> pinned;  // what the rows are answered in
  };

  void SetUp() override {
    const PoolCase& c = GetParam();
    spec_.hashed = c.hashed;
    spec_.optimizer.kind = OptimizerKind::kAdagrad;
    spec_.optimizer.initial_accumulator = 0.1f;
    spec_.weight_type = c.weight_type;
    spec_.dim = 37;
    options_.hot_bytes =
        c.budget_rows == 0 ? 16 << 20 : RowCost() * static_cast<uint64_t>(c.budget_rows);
    if (c.device_buckets > 0) UseDevice(c.device_buckets, /*ids_max=*/256);
    OpenStore();
    twin_ = std::make_unique<RowTwin>(spec_, range_);
    for (uint64_t i = 0; i < 200; ++i) ids_.push_back(spec_.hashed ? i * 0x9e3779b97f4a7c15u : i);
  }

  void Update(Random& random) {
    std::set<uint64_t> chosen;
    while (chosen.size() < 10) chosen.insert(ids_[random.Uniform(ids_.size() / 2)]);
    const std::vector<uint64_t> ids(chosen.begin(), chosen.end());
    std::vector<std::vector<float>> gradients(ids.size(), std::vector<float>(spec_.dim));
    const UpdateScalars scalars = ResolveScalars(spec_.optimizer, 0.05f, ++lsn_);
    for (size_t i = 0; i < ids.size(); ++i) {
      for (float& g : gradients[i]) g = static_cast<float>(random.Double() * 2 - 1);
      twin_->Update(ids[i], gradients[i], scalars);
    }
    ASSERT_TRUE(ApplyNow(ids, gradients, lsn_, scalars).ok());
    store_->SetAppliedLsn(lsn_);
  }

  Asked Draw(Random& random, uint32_t length_max) {
    Asked asked;
    asked.pooling = random.OneIn(3) ? RowPooling::kMax : RowPooling::kSum;
    asked.type = static_cast<RowType>(random.Uniform(3));
    asked.arg_max = asked.pooling == RowPooling::kMax && random.OneIn(2);
    const bool weighted = asked.pooling == RowPooling::kSum && random.OneIn(2);
    for (uint64_t b = 1 + random.Uniform(12); b > 0; --b) {
      asked.lengths.push_back(1 + static_cast<uint32_t>(random.Uniform(length_max)));
      // Some bags keep to few rows, which may all be resident.
      const uint64_t rows = random.OneIn(2) ? ids_.size() : 3;
      for (uint32_t k = asked.lengths.back(); k > 0; --k) {
        asked.ids.push_back(ids_[random.Uniform(rows)]);
        if (weighted) asked.weights.push_back(static_cast<float>(random.Double() * 2 - 1));
      }
    }
    return asked;
  }

  // The answer's buffers live until `done`.
  bool Start(const Asked& asked, Answer* answer, TieredStore::Done done) {
    answer->rows.assign(asked.lengths.size() * RowWireBytes(asked.type, spec_.dim), 0xee);
    answer->flags.assign(asked.ids.size(), 0xee);
    answer->arg_max.assign(asked.arg_max ? asked.lengths.size() * 4 * spec_.dim : 0, 0xee);
    RowReads reads;
    reads.ids = asked.ids.data();
    reads.count = static_cast<uint32_t>(asked.ids.size());
    reads.type = asked.type;
    answer->pinned = std::make_unique<PinnedRows>(host_->answer_pinner(), answer->rows.size());
    reads.rows = answer->pinned->data();
    reads.answer = answer->pinned.get();
    reads.flags = answer->flags.data();
    reads.pooling = asked.pooling;
    reads.bag_lengths = asked.lengths.data();
    reads.bags = static_cast<uint32_t>(asked.lengths.size());
    reads.weights = asked.weights.empty() ? nullptr : asked.weights.data();
    reads.arg_max = asked.arg_max ? answer->arg_max.data() : nullptr;
    return store_->Pull(reads, std::move(done));
  }

  void Check(const Asked& asked, const Answer& answer) {
    Answer want;
    size_t next = 0;
    for (const uint32_t length : asked.lengths) {
      std::vector<std::vector<float>> rows;
      std::vector<float> weights;
      for (uint32_t k = 0; k < length; ++k, ++next) {
        rows.push_back(twin_->Read(asked.ids[next]).weights);
        if (!asked.weights.empty()) weights.push_back(asked.weights[next]);
        want.flags.push_back(twin_->Exists(asked.ids[next]));
      }
      const PooledBag bag = PoolByHand(asked.pooling, spec_.dim, rows, weights);
      const Bytes row = PlainRow(bag.row, asked.type);
      Append(&want.rows, row.data(), row.size());
      if (asked.arg_max) Append(&want.arg_max, bag.arg_max.data(), 4 * bag.arg_max.size());
    }
    std::vector<uint8_t> rows(answer.rows.size());
    answer.pinned->CopyTo(rows.data());
    ASSERT_TRUE(rows == want.rows);
    ASSERT_EQ(answer.flags, want.flags);
    ASSERT_TRUE(answer.arg_max == want.arg_max);
  }

  std::vector<uint64_t> ids_;
  std::unique_ptr<RowTwin> twin_;
  Lsn lsn_ = 0;
};

TEST_P(StorePoolTest, BagsAreTheBitsOfTheirRows) {
  const uint64_t seed = SeedFromEnvironment(20260308);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  uint64_t device_hits = 0;
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    if (random.OneIn(3)) Update(random);
    if (random.OneIn(20)) {
      device_hits += store_->Stats().device_hits;
      Reopen(lsn_);
    }
    // Several at once, ended in any order by what the seed draws.
    std::vector<Asked> asked;
    for (int i = 0; i < 4; ++i) asked.push_back(Draw(random, 20));
    std::vector<Answer> answers(asked.size());
    int finished = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      finished += Start(asked[i], &answers[i], [&](absl::Status status) {
        EXPECT_TRUE(status.ok()) << status;
        ++finished;
      });
      if (random.OneIn(2)) Step(random);
    }
    while (Step(random)) {
    }
    ASSERT_EQ(finished, 4);
    for (size_t i = 0; i < asked.size(); ++i) Check(asked[i], answers[i]);
  }
  if (GetParam().device_buckets > 0) {
    // Rows come up from the host's memory; from a single row there, few do.
    EXPECT_GT(device_hits + store_->Stats().device_hits, GetParam().budget_rows == 1 ? 40u : 100u);
  } else if (GetParam().budget_rows == 1) {
    EXPECT_GT(store_->Stats().misses, 100u);
  }
}

TEST_P(StorePoolTest, BagsLongerThanAWindow) {
  const uint64_t seed = SeedFromEnvironment(7);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  for (int i = 0; i < 8; ++i) Update(random);
  const uint32_t window = kPoolStageBytes / static_cast<uint32_t>(spec_.weight_bytes_per_row());
  for (int round = 0; round < 3; ++round) {
    const Asked asked = Draw(random, 2 * window);
    ASSERT_GT(asked.ids.size(), window);
    Answer answer;
    bool finished = false;
    finished |= Start(asked, &answer, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      finished = true;
    });
    RunAll();
    ASSERT_TRUE(finished);
    Check(asked, answer);
  }
}

std::vector<PoolCase> PoolCases() {
  std::vector<PoolCase> cases;
  for (bool hashed : {false, true}) {
    for (int budget : {1, 2, 13, 60, 0}) {
      cases.push_back({hashed, static_cast<WeightType>((budget + hashed) % 3), budget});
    }
  }
  return cases;
}
// Bags that are on the device as a whole, in part, and not at all.
std::vector<PoolCase> DeviceCases() {
  std::vector<PoolCase> cases;
  for (bool hashed : {false, true}) {
    cases.push_back({hashed, static_cast<WeightType>(hashed), 1, 1});
    cases.push_back({hashed, static_cast<WeightType>(2 - hashed), 0, 2});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Device, StorePoolTest, ::testing::ValuesIn(DeviceCases()));
INSTANTIATE_TEST_SUITE_P(All, StorePoolTest, ::testing::ValuesIn(PoolCases()));

}  // namespace pooled_pull_test
}  // namespace hotbed
