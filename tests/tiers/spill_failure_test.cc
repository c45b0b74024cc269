// Failures of the disk: it damages rows, refuses them, and is put back to a frozen snapshot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "common/files/byte_order.h"
#include "kv/kv_store.h"
#include "row_math/position.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace spill_failure_test {

using ::testing::Contains;
using ::testing::HasSubstr;

class SpillFailureTest : public StoreFixture {
 protected:
  void Open() {
    OpenStore();
    twin_ = std::make_unique<RowTwin>(spec_, range_);
    ids_.resize(spec_.rows);
    std::iota(ids_.begin(), ids_.end(), uint64_t{0});
  }
  // The twin follows what succeeds.
  absl::Status Update(const std::vector<uint64_t>& ids) {
    const UpdateScalars scalars = {0.1f, 1.0f, 1.0f};
    std::vector<std::vector<float>> gradients;
    for (uint64_t id : ids) {
      gradients.emplace_back(spec_.dim, static_cast<float>(++lsn_ % 17) - 8.0f + id * 0.001f);
    }
    const absl::Status status = ApplyNow(ids, gradients, lsn_, scalars);
    for (size_t i = 0; status.ok() && i < ids.size(); ++i) {
      twin_->Update(ids[i], gradients[i], scalars);
      versions_[ids[i]].push_back(twin_->Read(ids[i]).weights);
    }
    return status;
  }
  void CheckAll() {
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids_, &rows, &flags).ok());
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto row = twin_->Read(ids_[i]).weights;
      ASSERT_EQ(std::memcmp(row.data(), rows.data() + i * spec_.dim, 4 * spec_.dim), 0)
          << "id " << ids_[i];
      ASSERT_EQ(flags[i], twin_->Exists(ids_[i])) << "id " << ids_[i];
    }
  }
  // Rows on disk, nothing in memory, and `change` has been done to the record of `id`.
  void Damage(
      uint64_t id,
      const std::function<void(KvStore*, const std::string& key, std::string* record)>& change) {
    ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
    ASSERT_TRUE(host_->Flush().ok());
    CloseStore();
    host_ = nullptr;
    KvOptions options;
    options.dir = dir_ + "/rows";
    options.wal = false;
    auto kv = KvStore::Open(options);
    ASSERT_TRUE(kv.ok()) << kv.status();
    const std::string key = KeyOf(id);
    auto record = (*kv)->Get(key);
    ASSERT_TRUE(record.ok()) << record.status();
    change(kv->get(), key, &*record);
    auto batch = (*kv)->NewBatch();
    batch->Put(key, *record);
    ASSERT_TRUE((*kv)->Write(batch.get()).ok());
    ASSERT_TRUE((*kv)->Flush().ok());
    kv->reset();
    OpenStore();
  }
  std::string KeyOf(uint64_t id) const {
    std::string key(14, '\0');
    StoreBig32(key.data(), spec_.id);
    StoreBig64(key.data() + 6, spec_.hashed ? Mix64(id) : id);
    return key;
  }

  std::unique_ptr<RowTwin> twin_;
  std::vector<uint64_t> ids_;
  std::map<uint64_t, std::vector<std::vector<float>>> versions_;  // weights after each update
  Lsn lsn_ = 0;
};

TEST_F(SpillFailureTest, DamagedRecordIsDataLossAndLeavesTheBatchAlone) {
  struct Case {
    const char* what;
    std::function<void(KvStore*, const std::string&, std::string*)> change;
  };
  const std::vector<Case> cases = {
      {"weights", [](auto*, auto&, std::string* r) { (*r)[12] ^= 1; }},
      {"LSN", [](auto*, auto&, std::string* r) { (*r)[3] ^= 1; }},
      {"checksum", [](auto*, auto&, std::string* r) { r->back() ^= 0x40; }},
      {"length", [](auto*, auto&, std::string* r) { r->pop_back(); }},
      {"another row's record",
       [this](KvStore* kv, auto&, std::string* r) { *r = *kv->Get(KeyOf(18)); }},
  };
  for (bool hashed : {false, true}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << c.what << (hashed ? ", hashed" : ", bounded"));
      spec_.hashed = hashed;
      spec_.id = hashed ? 8 : 7;
      Open();
      ASSERT_TRUE(Update({16, 17, 18, 19}).ok());
      Damage(17, c.change);

      std::vector<float> rows;
      std::vector<uint8_t> flags;
      const absl::Status pulled = PullNow({16, 17, 18}, &rows, &flags);
      EXPECT_EQ(pulled.code(), absl::StatusCode::kDataLoss) << pulled;
      EXPECT_THAT(std::string(pulled.message()), HasSubstr(ShardId{spec_.id, 3}.ToString()));
      EXPECT_THAT(std::string(pulled.message()), HasSubstr("id 17 "));
      EXPECT_EQ(Update({19, 17, 5}).code(), absl::StatusCode::kDataLoss);
      // Neither the row before nor the one after it took a step, and the shard continues without
      // it.
      ids_ = {16, 18, 19, 5};
      CheckAll();
      ASSERT_TRUE(Update({16, 5}).ok());
      CheckAll();
      CloseStore();
      host_ = nullptr;
      std::filesystem::remove_all(dir_);
    }
  }
}

TEST_F(SpillFailureTest, RestoreGoesBackToTheFrozenCopyOfOneTable) {
  options_.hot_bytes = RowCost() * 5;
  Open();
  ASSERT_TRUE(Update({1, 2, 3, 4, 5, 6, 7}).ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "first").ok());
  ASSERT_TRUE(host_->Flush().ok());
  ASSERT_TRUE(host_->Freeze().ok());
  ASSERT_TRUE(Update({3, 4, 100}).ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "second").ok());
  ASSERT_TRUE(host_->Freeze().ok());
  const auto frozen = std::make_unique<RowTwin>(*twin_);
  const Lsn frozen_lsn = lsn_;

  // Another table moves on and is not to be put back.
  std::unique_ptr<TieredStore> first_store = std::move(store_);
  std::unique_ptr<RowTwin> first_twin = std::move(twin_);
  spec_.id = 8;
  Open();
  ASSERT_TRUE(Update({1, 2}).ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "other").ok());
  const std::unique_ptr<RowTwin> other_twin = std::move(twin_);
  store_ = std::move(first_store);  // closes the other table's
  twin_ = std::move(first_twin);
  spec_.id = 7;
  ASSERT_TRUE(Update({1, 3, 150}).ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "third").ok());
  ASSERT_TRUE(Update({2, 160}).ok());

  // A crash: whatever reached the disk, the table is as it was frozen.
  ASSERT_TRUE(host_->Flush().ok());
  CloseStore();
  host_ = nullptr;
  OpenHost();
  ASSERT_TRUE(host_->RestoreTable(7).ok());
  OpenStore();
  EXPECT_EQ(store_->meta(), "second");
  EXPECT_EQ(store_->highest_lsn(), frozen_lsn);
  twin_ = std::make_unique<RowTwin>(*frozen);
  CheckAll();
  spec_.id = 8;
  OpenStore();
  EXPECT_EQ(store_->meta(), "other");
  twin_ = std::make_unique<RowTwin>(*other_twin);
  CheckAll();
}

TEST_F(SpillFailureTest, RestoreWithoutAFrozenCopyLeavesNothing) {
  Open();
  ASSERT_TRUE(Update({1, 2, 3}).ok());
  Reopen(lsn_);
  CloseStore();
  ASSERT_TRUE(host_->RestoreTable(7).ok());
  OpenStore();
  EXPECT_EQ(store_->meta(), "");
  EXPECT_EQ(store_->highest_lsn(), 0u);
  twin_->Clear();
  CheckAll();
}

// Rows of 12 KB, so that the megabyte that may wait for the disk is soon full.
class WriteFailureTest : public SpillFailureTest {
 protected:
  WriteFailureTest() {
    spec_.dim = 1000;
    spec_.rows = 400;
    spec_.optimizer.kind = OptimizerKind::kAdam;
    options_.hot_bytes = RowCost() * 4;
  }
  // Updates rows one by one; returns the first error.
  absl::Status UpdateUntilRefused() {
    for (uint64_t id = 0; id < spec_.rows; ++id) {
      if (absl::Status status = Update({id}); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // A start with room: each row is whole, as some update left it, and the log would bring the rest.
  void OpenWithRoom() {
    CloseStore();
    host_ = nullptr;
    options_.spill_bytes_max = 0;
    OpenStore();
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids_, &rows, &flags).ok());
    const RowTwin never(spec_, range_);
    for (uint64_t id : ids_) {
      const std::vector<float> row(&rows[id * spec_.dim], &rows[id * spec_.dim] + spec_.dim);
      if (flags[id]) {
        ASSERT_THAT(versions_[id], Contains(row)) << "id " << id;
      } else {
        ASSERT_EQ(row, never.Read(id).weights) << "id " << id;
      }
    }
  }
};

// All rows are in memory and changed; the disk has room for a tenth of them, and what RocksDB keeps
// in memory before a flush fails is no more.
TEST_F(WriteFailureTest, AWriteBackThatFillsTheDiskEndsAndClaimsNothing) {
  spec_.rows = 1600;
  options_.hot_bytes = RowCost() * 2 * spec_.rows;
  options_.spill_bytes_max = 2 << 20;
  Open();
  ASSERT_TRUE(UpdateUntilRefused().ok());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status written_back = WriteBackNow(lsn_, "claimed");
    EXPECT_EQ(written_back.code(), absl::StatusCode::kResourceExhausted) << written_back;
    CheckAll();
  }
  OpenWithRoom();
  EXPECT_EQ(store_->meta(), "") << "the log is needed as before";
  ASSERT_TRUE(UpdateUntilRefused().ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "kept").ok());
  EXPECT_EQ(store_->meta(), "kept");
}

TEST_F(WriteFailureTest, NoRowIsLostWhileWritesFailAndAllRecovers) {
  Open();
  before_write_back_ = absl::UnavailableError("the log is not synced");
  const absl::Status refused = UpdateUntilRefused();
  EXPECT_EQ(refused, before_write_back_) << "bounded: it must say so at some point";
  EXPECT_GT(twin_->rows().size(), 50u) << "and have room for some";
  EXPECT_EQ(WriteBackNow(lsn_, "lost").code(), absl::StatusCode::kUnavailable);
  CheckAll();
  EXPECT_EQ(Update({399}).code(), absl::StatusCode::kUnavailable) << "still";
  CheckAll();

  before_write_back_ = absl::OkStatus();
  ASSERT_TRUE(WriteBackNow(lsn_, "kept").ok());
  ASSERT_TRUE(UpdateUntilRefused().ok());
  CheckAll();
  Reopen(lsn_);
  CheckAll();
}

TEST_F(WriteFailureTest, AFullDiskIsResourceExhausted) {
  options_.spill_bytes_max = 2 << 20;
  Open();
  // All rows may be in RocksDB's memory before a flush fails; not several times over.
  absl::Status refused;
  for (int round = 0; refused.ok() && round < 20; ++round) refused = UpdateUntilRefused();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  CheckAll();
  EXPECT_FALSE(host_->GetHealth().background_error.empty());

  OpenWithRoom();
  ASSERT_TRUE(Update({3, 5}).ok());
  ASSERT_TRUE(WriteBackNow(lsn_, "").ok());
}

}  // namespace spill_failure_test
}  // namespace hotbed
