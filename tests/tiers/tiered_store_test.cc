// Compares the store with a map and a scalar optimizer, to the bit, with reads, updates,
// write-backs and restarts interleaved at random.
#include "server/tiers/api/tiered_store.h"

#include <gmock/gmock.h>

#include <set>

#include "absl/algorithm/container.h"
#include "tests/common/number_of.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace tiered_store_test {

struct TwinCase {
  bool hashed;
  OptimizerKind optimizer;
  WeightType weight_type;
  int budget_rows;  // 0: everything fits
  bool options = false;
  int device_buckets = -1;  // -1: no device

  friend std::ostream& operator<<(std::ostream& out, const TwinCase& c) {
    return out << (c.hashed ? "hashed" : "bounded") << " optimizer " << int(c.optimizer)
               << " weights " << int(c.weight_type) << " budget " << c.budget_rows
               << (c.options ? " with options" : "") << " device " << c.device_buckets;
  }
};

// Options that need a row's whole history or identity: counters, draws, state of two bytes.
void TurnOptionsOn(OptimizerParams* o) {
  o->decay_mode = DecayMode::kDecoupled;
  o->lazy_decay = true;
  o->row_bias_correction = true;
  o->stochastic_rounding = true;
  o->state_type = StateType::kBf16;
  o->clip_value = 0.8f;
  o->clip_row_norm = 1.2f;
  o->max_norm = 1.5f;
  o->l1 = 0.05f;
}

class StoreTwinTest : public StoreFixture, public ::testing::WithParamInterface<TwinCase> {
 protected:
  // A pull that has been started: every row's versions since then are right answers.
  struct OpenPull {
    std::vector<uint64_t> ids;
    std::vector<float> rows;
    std::unique_ptr<PinnedRows> pinned;  // what they are answered in, or null
    std::vector<uint8_t> flags;
    std::vector<size_t> versions_before;
    bool finished = false;
  };

  void SetUp() override {
    const TwinCase& c = GetParam();
    spec_.hashed = c.hashed;
    spec_.optimizer.kind = c.optimizer;
    spec_.optimizer.weight_decay = 0.01f;
    spec_.optimizer.initial_accumulator = 0.1f;
    spec_.weight_type = c.weight_type;
    if (c.options) TurnOptionsOn(&spec_.optimizer);
    options_.hot_bytes =
        c.budget_rows == 0 ? 16 << 20 : RowCost() * static_cast<uint64_t>(c.budget_rows);
    if (c.device_buckets >= 0) UseDevice(static_cast<uint32_t>(c.device_buckets));
    OpenStore();
    twin_ = std::make_unique<RowTwin>(spec_, range_);
    for (uint64_t i = 0; i < 200; ++i) ids_.push_back(spec_.hashed ? i * 0x9e3779b97f4a7c15u : i);
  }

  // All versions that a row ever had; the first is its first value.
  std::vector<std::vector<float>>& Versions(uint64_t id) {
    auto& versions = versions_[id];
    if (versions.empty()) versions.push_back(twin_->Read(id).weights);
    return versions;
  }

  void StartPull(Random& random) {
    auto pull = std::make_unique<OpenPull>();
    const size_t count = 1 + random.Uniform(20);
    for (size_t i = 0; i < count; ++i) pull->ids.push_back(ids_[random.Uniform(ids_.size())]);
    for (uint64_t id : pull->ids) {
      const size_t versions = Versions(id).size();
      // Rows of an Apply in flight may be read as they were before it.
      const bool updating = applying_ && absl::c_linear_search(update_ids_, id);
      pull->versions_before.push_back(versions - (updating ? 1 : 0));
    }
    pull->rows.resize(count * spec_.dim);
    pull->flags.resize(count);
    OpenPull* p = pull.get();
    RowReads reads;
    reads.ids = p->ids.data();
    reads.count = static_cast<uint32_t>(count);
    reads.rows = reinterpret_cast<uint8_t*>(p->rows.data());
    reads.flags = p->flags.data();
    if (random.OneIn(2)) {
      p->pinned = std::make_unique<PinnedRows>(host_->answer_pinner(), 4 * p->rows.size());
      reads.rows = p->pinned->data();
      reads.answer = p->pinned.get();
    }
    const bool finished = store_->Pull(reads, [this, p](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      Check(*p);
      p->finished = true;
    });
    if (finished) {
      Check(*p);
    } else {
      pulls_.push_back(std::move(pull));
    }
  }

  void Check(OpenPull& pull) {
    if (pull.pinned != nullptr) pull.pinned->CopyTo(pull.rows.data());
    for (size_t i = 0; i < pull.ids.size(); ++i) {
      const auto& versions = Versions(pull.ids[i]);
      const float* row = pull.rows.data() + i * spec_.dim;
      bool known = false;
      for (size_t v = pull.versions_before[i] - 1; v < versions.size(); ++v) {
        known |= std::memcmp(versions[v].data(), row, 4 * spec_.dim) == 0;
      }
      EXPECT_TRUE(known) << "id " << pull.ids[i] << ": not a value it had during the pull";
      if (pull.versions_before[i] > 1) {
        EXPECT_EQ(pull.flags[i], 1) << "id " << pull.ids[i];
      } else if (versions.size() == 1) {
        EXPECT_EQ(pull.flags[i], 0) << "id " << pull.ids[i];
      }
    }
  }

  void StartApply(Random& random) {
    std::set<uint64_t> chosen;
    const size_t count = 1 + random.Uniform(12);
    while (chosen.size() < count) chosen.insert(ids_[random.Uniform(ids_.size())]);
    update_ids_.assign(chosen.begin(), chosen.end());
    gradients_.clear();
    gradient_rows_.clear();
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> g(spec_.dim);
      for (float& x : g) x = static_cast<float>(random.Double() * 2 - 1);
      gradients_.push_back(std::move(g));
    }
    for (const auto& g : gradients_) {
      gradient_rows_.push_back(reinterpret_cast<const uint8_t*>(g.data()));
    }
    RowUpdates updates;
    updates.ids = update_ids_.data();
    updates.count = static_cast<uint32_t>(count);
    updates.gradients = gradient_rows_.data();
    updates.lsn = ++lsn_;
    scalars_ = ResolveScalars(spec_.optimizer, 0.05f, lsn_);
    scalars_.gradient_scale = GetParam().options ? 0.5f : 1.0f;
    updates.scalars = scalars_;
    updates.assign = random.OneIn(10);
    for (size_t i = 0; i < count; ++i) {
      Versions(update_ids_[i]);
      if (updates.assign) {
        twin_->Assign(update_ids_[i], gradients_[i]);
      } else {
        twin_->Update(update_ids_[i], gradients_[i], scalars_);
      }
      versions_[update_ids_[i]].push_back(twin_->Read(update_ids_[i]).weights);
    }
    applying_ = true;
    const bool finished = store_->Apply(updates, [this](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      applying_ = false;
      store_->SetAppliedLsn(lsn_);
    });
    if (!finished) return;
    applying_ = false;
    store_->SetAppliedLsn(lsn_);
  }

  void CheckAll() {
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids_, &rows, &flags).ok());
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto want = twin_->Read(ids_[i]);
      ASSERT_EQ(std::memcmp(want.weights.data(), rows.data() + i * spec_.dim, 4 * spec_.dim), 0)
          << "id " << ids_[i];
      ASSERT_EQ(flags[i], twin_->Exists(ids_[i])) << "id " << ids_[i];
    }
  }

  // The rows are where the case means them to be.
  void CheckDevice() {
    const StoreStats stats = store_->Stats();
    const uint64_t slots = uint64_t{device::kBucketSlots} * std::max(GetParam().device_buckets, 0);
    if (slots == 0) {
      EXPECT_EQ(stats.device_bytes, 0u);
      EXPECT_EQ(stats.device_hits, 0u);
    } else {
      const bool many = GetParam().budget_rows != 1;
      EXPECT_GT(stats.device_hits, many ? 100u : 40u);
      StatusNumbers numbers;
      host_->AddDeviceNumbers(&numbers);
      EXPECT_GT(numbers["device_rows_direct_bytes"], 0u);
      // Rows come up from the host's memory; where that has room for one, few do.
      EXPECT_GT(stats.device_rows, many ? std::min<uint64_t>(slots / 4, 64) : 0u);
      EXPECT_LE(stats.device_rows, std::min<uint64_t>(slots, ids_.size()));
    }
  }

  void Settle(Random& random) {
    while (Step(random)) {
    }
    ASSERT_FALSE(applying_);
    for (const auto& pull : pulls_) ASSERT_TRUE(pull->finished);
    pulls_.clear();
  }

  std::vector<uint64_t> ids_;
  std::unique_ptr<RowTwin> twin_;
  std::map<uint64_t, std::vector<std::vector<float>>> versions_;
  std::vector<std::unique_ptr<OpenPull>> pulls_;
  std::vector<uint64_t> update_ids_;
  std::vector<std::vector<float>> gradients_;
  std::vector<const uint8_t*> gradient_rows_;
  UpdateScalars scalars_;
  Lsn lsn_ = 0;
  bool applying_ = false;
  bool writing_back_ = false;
};

TEST_P(StoreTwinTest, RandomOperations) {
  const uint64_t seed = SeedFromEnvironment(20260131);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  step_ns_ = 20 * kMillisecondNs;
  for (int step = 0; step < 3000 && !HasFailure(); ++step) {
    // The tier becomes indexed and gives memory back in the middle of everything else.
    if (GetParam().budget_rows == 220 && random.OneIn(30)) {
      const auto rows = static_cast<float>(random.Uniform(250));
      host_->SetMemoryShare(spec_.id, 0, std::max(rows, 1.0f) / 250);
    }
    switch (random.Uniform(12)) {
      case 0:
      case 1:
      case 2:
        if (!applying_) StartApply(random);
        break;
      case 3:
      case 4:
        StartPull(random);
        break;
      case 5:
        if (!writing_back_) {
          writing_back_ = true;
          store_->WriteBackAll(lsn_ - (applying_ ? 1 : 0), absl::StrCat("meta ", lsn_),
                               [this](absl::Status status) {
                                 EXPECT_TRUE(status.ok()) << status;
                                 writing_back_ = false;
                               });
        }
        break;
      default:
        for (uint64_t i = random.Uniform(6); i > 0; --i) Step(random);
    }
    if (step % 1000 == 999) {
      Settle(random);
      CheckAll();
      CheckDevice();
      Reopen(lsn_);
      CheckAll();
    }
    ASSERT_LE(NumberOf(*host_, "hot_bytes"), options_.hot_bytes + (2 << 20));
  }
  EXPECT_LE(log_held_, lsn_);
}

std::vector<TwinCase> TwinCases() {
  std::vector<TwinCase> cases;
  for (bool hashed : {false, true}) {
    for (int budget : {1, 2, 7, 60, 220, 0}) {
      for (auto optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                             OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
        const auto type = static_cast<WeightType>((budget + int(optimizer)) % 3);
        cases.push_back({hashed, optimizer, type, budget});
      }
    }
  }
  for (int kind = 0; kind <= static_cast<int>(kLastOptimizerKind); ++kind) {
    for (int budget : {1, 60}) {
      const auto type = static_cast<WeightType>((kind + budget) % 3);
      cases.push_back({(kind + budget) % 2 == 0, static_cast<OptimizerKind>(kind), type, budget,
                       /*options=*/true});
    }
  }
  return cases;
}
// Over an emulated device: too small for a bucket, one bucket, two, and room for all; over a host
// tier of one row, of some, and of all.
std::vector<TwinCase> DeviceCases() {
  constexpr int kBucketsAndBudgets[][2] = {{0, 60}, {1, 1}, {1, 0}, {2, 60}, {16, 7}, {16, 0}};
  std::vector<TwinCase> cases;
  for (bool hashed : {false, true}) {
    for (const auto& [buckets, budget] : kBucketsAndBudgets) {
      const bool adam = (buckets + budget) % 2 == 0;
      const auto optimizer = adam ? OptimizerKind::kAdam : OptimizerKind::kRowwiseAdagrad;
      const auto type = static_cast<WeightType>((budget + buckets + hashed) % 3);
      cases.push_back({hashed, optimizer, type, budget, false, buckets});
    }
  }
  // Kinds that need more than a row's weights and gradient; placement_invariance_test has all.
  for (auto optimizer : {OptimizerKind::kAdam, OptimizerKind::kLamb, OptimizerKind::kFtrl}) {
    cases.push_back({true, optimizer, WeightType::kBf16, 7, true, 1});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Device, StoreTwinTest, ::testing::ValuesIn(DeviceCases()));
INSTANTIATE_TEST_SUITE_P(All, StoreTwinTest, ::testing::ValuesIn(TwinCases()));

}  // namespace tiered_store_test
}  // namespace hotbed
