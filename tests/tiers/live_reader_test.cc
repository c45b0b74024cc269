// Snapshot transfers of an open shard that keeps being updated, without WriteBackAll.
#include "server/tiers/spill/live_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "row_math/position.h"
#include "server/tiers/spill/spill_record.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace live_reader_test {

class LiveReaderTest : public StoreFixture {
 protected:
  struct Version {
    Lsn lsn;
    std::string payload;
  };

  LiveReaderTest() : random_(seed_) {
    spec_.optimizer.kind = OptimizerKind::kAdagrad;
    spec_.rows = 400;
  }
  SpillShard Shard() const { return SpillShard(spec_, range_, {spec_.id, 3}); }
  uint64_t PositionOf(uint64_t id) const { return spec_.hashed ? Mix64(id) : id; }

  // One push of a few rows; the twin keeps each row as it was after each of its updates.
  void Update() {
    std::vector<uint64_t> ids;
    std::vector<std::vector<float>> gradients;
    const uint64_t count = 1 + random_.Uniform(12);
    while (ids.size() < count) {
      const uint64_t id = random_.Uniform(spec_.rows);
      if (std::count(ids.begin(), ids.end(), id) > 0) continue;
      ids.push_back(id);
      gradients.emplace_back(spec_.dim, static_cast<float>(random_.Double() - 0.5));
    }
    ASSERT_TRUE(ApplyNow(ids, gradients, ++lsn_).ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      twin_->Update(ids[i], gradients[i], {0.1f, 1.0f, 1.0f});
      const RowTwin::Row row = twin_->Read(ids[i]);
      std::string payload(Shard().payload_bytes, '\0');
      std::memcpy(payload.data(), row.weights.data(), 4 * spec_.dim);
      std::memcpy(payload.data() + 4 * spec_.dim, row.vectors[0].data(), 4 * spec_.dim);
      versions_[PositionOf(ids[i])].push_back({lsn_, std::move(payload)});
    }
  }
  // Work during a transfer: pushes, pulls that bring rows back, WriteBackAll, flushes.
  void Disturb() {
    for (uint64_t n = random_.Uniform(3); n > 0; --n) Update();
    if (random_.OneIn(3)) {
      std::vector<float> rows;
      std::vector<uint8_t> flags;
      ASSERT_TRUE(
          PullNow({random_.Uniform(spec_.rows), random_.Uniform(spec_.rows)}, &rows, &flags).ok());
    }
    if (random_.OneIn(8)) {
      ASSERT_TRUE(WriteBackNow(lsn_, "meta").ok());
    }
    if (random_.OneIn(8)) {
      ASSERT_TRUE(host_->Flush().ok());
    }
  }
  // The row as all updates up to `lsn` have made it; null: it is not there yet.
  const std::string* AsOf(uint64_t position, Lsn lsn) const {
    const std::string* payload = nullptr;
    const auto it = versions_.find(position);
    if (it == versions_.end()) return nullptr;
    for (const Version& version : it->second) {
      if (version.lsn <= lsn) payload = &version.payload;
    }
    return payload;
  }
  // A pass into copy_; its LSN.
  Lsn Pass(Lsn above) {
    LivePass pass;
    pass.above = above;
    EXPECT_TRUE(store_->BeginPass(above != 0, &pass.positions));
    const Lsn base = lsn_;
    pass.read = [this](absl::Span<const uint64_t> positions, LiveRows* rows) {
      store_->ReadPass(positions, rows);
      Disturb();  // before the spill tier is read
      return absl::OkStatus();
    };
    auto reader = host_->ReadLive(Shard(), std::move(pass));
    EXPECT_TRUE(reader.ok()) << reader.status();
    uint64_t last = 0;
    bool first = true;
    for (;;) {
      Disturb();
      const uint64_t bytes_max = 300 + random_.Uniform(2000);
      const auto bytes = (*reader)->Next(bytes_max);
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok() || bytes->empty()) return base;
      EXPECT_LE(bytes->size(), bytes_max + Shard().record_bytes());
      const auto block = RowBlock::Parse(*bytes, Shard().record_bytes());
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint32_t row = 0; row < block->rows(); ++row) {
        const uint64_t position = block->position(row);
        EXPECT_TRUE(first || position > last) << "rows in order, each once";
        first = false;
        last = position;
        EXPECT_TRUE(
            CheckRecord(Shard(), position, SpillRowKey(Shard(), position), block->record(row))
                .ok());
        copy_[position] = std::string(block->record(row));
      }
    }
  }
  // The row as sent plus the updates above `base` and above its LSN must give the row as it is
  // here.
  void ExpectWhole(Lsn base) {
    for (const auto& [position, versions] : versions_) {
      const auto it = copy_.find(position);
      if (it == copy_.end()) {
        EXPECT_EQ(AsOf(position, base), nullptr) << "row " << position << " did not come";
        continue;
      }
      const Lsn lsn = SpillTier::LsnOf(reinterpret_cast<const uint8_t*>(it->second.data()));
      const std::string* const wanted = AsOf(position, std::max(lsn, base));
      ASSERT_NE(wanted, nullptr) << "row " << position;
      EXPECT_EQ(it->second.substr(kSpillHeaderBytes, wanted->size()), *wanted)
          << "row " << position << ", LSN " << lsn << ", snapshot as of " << base;
    }
  }

  const uint64_t seed_ = SeedFromEnvironment(11);
  Random random_;
  Lsn lsn_ = 0;
  std::unique_ptr<RowTwin> twin_;
  std::map<uint64_t, std::vector<Version>> versions_;  // by position
  std::map<uint64_t, std::string> copy_;
};

TEST_F(LiveReaderTest, EachRowIsAsItWasAtItsLsn) {
  SCOPED_TRACE(Replay(seed_));
  uint64_t evictions = 0;
  for (const bool hashed : {false, true}) {
    for (const uint64_t part : {1, 3, 20}) {  // of the rows that memory has room for
      SCOPED_TRACE(::testing::Message() << (hashed ? "hashed" : "bounded") << ", 1/" << part);
      CloseStore();
      host_ = nullptr;
      std::filesystem::remove_all(dir_);
      spec_.hashed = hashed;
      spec_.id = hashed ? 8 : 7;
      options_.hot_bytes = spec_.rows * RowCost() / part + (part == 1 ? 64 << 10 : 0);
      OpenStore();
      twin_ = std::make_unique<RowTwin>(spec_, range_);
      versions_.clear();
      lsn_ = 0;
      for (int i = 0; i < 40; ++i) Update();
      for (int copy = 0; copy < 5; ++copy) {
        copy_.clear();
        Lsn base = Pass(0);
        ExpectWhole(base);
        for (uint64_t further = random_.Uniform(4); further > 0; --further) {
          for (uint64_t n = random_.Uniform(20); n > 0; --n) Update();
          base = Pass(base);
          ExpectWhole(base);
        }
      }
      evictions += store_->Stats().evictions;
    }
  }
  EXPECT_GT(evictions, 1000u);
}

// Where all that there is lies in memory and nothing changes, a further pass is empty, and the
// spill tier is neither written nor read.
TEST_F(LiveReaderTest, WhatMemoryHasIsNotWritten) {
  options_.hot_bytes = 2 * spec_.rows * RowCost() + (1 << 20);
  OpenStore();
  twin_ = std::make_unique<RowTwin>(spec_, range_);
  for (int i = 0; i < 100; ++i) Update();
  LivePass pass;
  ASSERT_TRUE(store_->BeginPass(false, &pass.positions));
  EXPECT_EQ(pass.positions.size(), versions_.size());
  LiveRows rows;
  store_->ReadPass(pass.positions, &rows);
  EXPECT_TRUE(rows.all);
  EXPECT_EQ(std::count(rows.found.begin(), rows.found.end(), 1),
            static_cast<int64_t>(versions_.size()));
  EXPECT_EQ(store_->Stats().writebacks, 0u);
  std::vector<uint64_t> changed;
  ASSERT_TRUE(store_->BeginPass(true, &changed));
  EXPECT_TRUE(changed.empty());
  Update();
  const Lsn last = lsn_;
  ASSERT_TRUE(store_->BeginPass(true, &changed));
  for (const uint64_t position : changed) EXPECT_EQ(versions_[position].back().lsn, last);
  EXPECT_FALSE(changed.empty());
}

}  // namespace live_reader_test
}  // namespace hotbed
