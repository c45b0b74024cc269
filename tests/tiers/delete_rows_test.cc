// Rows that are deleted, over all tiers: memory of any size, the spill tier, an emulated device;
// over write-backs, crashes with replays, and restarts.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "row_math/position.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_record.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace delete_rows_test {

constexpr uint64_t kIds = 40;

// The parameter: rows that fit into memory (0: all), negative with a device above.
class DeleteRowsTest : public StoreFixture, public ::testing::WithParamInterface<int> {
 protected:
  struct Record {
    std::vector<uint64_t> ids;
    std::vector<std::vector<float>> gradients;  // none: a delete
  };

  void SetUp() override {
    spec_.hashed = true;
    spec_.rows = kIds;
    spec_.optimizer.kind = OptimizerKind::kAdagrad;  // applying a record twice shows
    const int rows = std::abs(GetParam());
    if (rows > 0) options_.hot_bytes = RowCost() * static_cast<uint64_t>(rows);
    if (GetParam() < 0) UseDevice(/*buckets=*/1);
    log_.resize(1);
  }
  absl::Status DeleteNow(const std::vector<uint64_t>& ids, Lsn lsn) {
    RowUpdates updates;
    updates.ids = ids.data();
    updates.count = static_cast<uint32_t>(ids.size());
    updates.lsn = lsn;
    updates.deletes = true;
    absl::Status result;
    bool finished = store_->Apply(updates, [&](absl::Status status) {
      result = std::move(status);
      finished = true;
    });
    if (!finished) RunAll();
    EXPECT_TRUE(finished) << "a delete that never ends";
    return result;
  }
  void Apply(Lsn lsn) {
    const Record& record = log_[lsn];
    const absl::Status applied = record.gradients.empty()
                                     ? DeleteNow(record.ids, lsn)
                                     : ApplyNow(record.ids, record.gradients, lsn);
    ASSERT_TRUE(applied.ok()) << "LSN " << lsn << ": " << applied;
    store_->SetAppliedLsn(lsn);
  }
  void Push(const std::vector<uint64_t>& ids) {
    Record& record = log_.emplace_back();
    for (const uint64_t id : ids) {
      record.ids.push_back(id);
      record.gradients.emplace_back(spec_.dim, 0.25f + static_cast<float>(log_.size()));
    }
    Apply(last());
  }
  void Delete(const std::vector<uint64_t>& ids) {
    log_.push_back({ids, {}});
    Apply(last());
  }
  Lsn last() const { return log_.size() - 1; }
  void WriteBack() { ASSERT_TRUE(WriteBackNow(last(), absl::StrCat("at ", last())).ok()); }
  // Rows in memory are gone; those that were handed over are on disk. The log is replayed.
  void CrashAndReplay() {
    ASSERT_TRUE(host_->Flush().ok());
    CloseStore();
    host_ = nullptr;
    OpenStore();
    store_->SetAppliedLsn(written_);
    store_->BeginReplay();
    for (Lsn lsn = written_ + 1; lsn <= last(); ++lsn) Apply(lsn);
    store_->EndReplay();
  }
  // As a shard does it: all rows are written back first, and the log is not replayed below.
  uint64_t DropMarks(Lsn through) {
    WriteBack();
    written_ = last();
    const auto left = host_->DropMarks(SpillShard(spec_, range_, {spec_.id, 3}), through,
                                       [] { return absl::OkStatus(); });
    EXPECT_TRUE(left.ok()) << left.status();
    return left.value_or(0);
  }
  uint64_t StoredMarks() {
    uint64_t marks = 0;
    const SpillShard shard(spec_, range_, {spec_.id, 3});
    EXPECT_TRUE(host_->spill_store()
                    ->Scan(View(FirstRowKey(shard)), RowKeyLimit(shard),
                           [&](absl::string_view, absl::string_view record) {
                             marks += record.size() == kDeletedRecordBytes ? 1 : 0;
                             return true;
                           })
                    .ok());
    return marks;
  }
  RowTwin TwinAt(Lsn lsn) const {
    RowTwin twin(spec_, range_);
    for (Lsn l = 1; l <= lsn; ++l) {
      const Record& record = log_[l];
      for (size_t i = 0; i < record.ids.size(); ++i) {
        if (record.gradients.empty()) {
          twin.Forget(record.ids[i]);
        } else {
          twin.Update(record.ids[i], record.gradients[i], {0.1f, 1.0f, 1.0f});
        }
      }
    }
    return twin;
  }
  void CheckRows() {
    const RowTwin twin = TwinAt(last());
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < kIds; ++id) ids.push_back(id);
    std::vector<float> rows;
    std::vector<uint8_t> flags;
    ASSERT_TRUE(PullNow(ids, &rows, &flags).ok());
    for (const uint64_t id : ids) {
      const std::vector<float> row(rows.begin() + id * spec_.dim,
                                   rows.begin() + (id + 1) * spec_.dim);
      ASSERT_EQ(row, twin.Read(id).weights) << "id " << id;
      ASSERT_EQ(flags[id] & 1, twin.Exists(id)) << "id " << id;
    }
  }
  // What a reader of all rows above `above` is told: true for a row, false for a deleted one.
  std::map<uint64_t, bool> ReadAbove(Lsn above) {
    std::map<uint64_t, bool> told;
    const SpillShard shard(spec_, range_, {spec_.id, 3});
    auto reader = host_->ReadShard(shard, above);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (;;) {
      const auto block = (*reader)->Next(1000);
      EXPECT_TRUE(block.ok()) << block.status();
      if (!block.ok() || block->empty()) return told;
      EXPECT_TRUE(VisitRows(shard, *block, [&](uint64_t position, const uint8_t* payload) {
                    told[Unmix64(position)] = payload != nullptr;
                  }).ok());
    }
  }

  std::vector<Record> log_;  // by LSN
  Lsn written_ = 0;          // the log begins behind it
};

TEST_P(DeleteRowsTest, ADeletedRowIsItsFirstValueUntilItIsPushedAgain) {
  OpenStore();
  Push({1, 2, 3});
  Delete({2, 3, 17});
  CheckRows();
  Push({3});
  CheckRows();
  WriteBack();
  CheckRows();
  Delete({1, 3});
  CheckRows();
  CrashAndReplay();
  CheckRows();
  Delete({1, 2, 3});
  CheckRows();
}

TEST_P(DeleteRowsTest, ReadersOfChangesAreToldOfDeletedRows) {
  OpenStore();
  Push({1, 2, 3, 4});
  WriteBack();
  const Lsn before = last();
  Delete({2, 3, 30});
  Push({3, 5});
  WriteBack();
  std::map<uint64_t, bool> told = ReadAbove(before);
  told.erase(30);  // a row that never was may be told, too, where a device is above
  EXPECT_EQ(told, (std::map<uint64_t, bool>{{2, false}, {3, true}, {5, true}}));
  std::map<uint64_t, bool> all = ReadAbove(0);
  EXPECT_EQ(all.at(2), false);
  EXPECT_EQ(all.at(1), true);
  CheckRows();
}

TEST_P(DeleteRowsTest, TheSpaceOfADeletedRowComesBack) {
  OpenStore();
  Push({1, 2});
  WriteBack();
  Delete({1, 2});
  WriteBack();
  const SpillShard shard(spec_, range_, {spec_.id, 3});
  const uint64_t positions[] = {std::min(Mix64(1), Mix64(2)), std::max(Mix64(1), Mix64(2))};
  for (const uint64_t position : positions) {
    const SpillKey key = SpillRowKey(shard, position);
    const auto stored = host_->spill_store()->Get(View(key));
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->size(), kDeletedRecordBytes);
  }
}

TEST_P(DeleteRowsTest, MarksThroughAnLsnGo) {
  OpenStore();
  Push({1, 2, 3, 4, 5});
  WriteBack();
  Delete({1, 2, 3});
  WriteBack();
  const Lsn through = last();
  Push({2});
  Delete({4});
  EXPECT_EQ(DropMarks(through), 1u);  // 4's stays; 2 was pushed again
  EXPECT_EQ(StoredMarks(), 1u);
  EXPECT_EQ(ReadAbove(through), (std::map<uint64_t, bool>{{2, true}, {4, false}}));
  CheckRows();
  CrashAndReplay();
  CheckRows();
  EXPECT_EQ(DropMarks(last()), 0u);
  EXPECT_EQ(StoredMarks(), 0u);
  EXPECT_EQ(ReadAbove(0), (std::map<uint64_t, bool>{{2, true}, {5, true}}));
  CheckRows();
}

TEST_P(DeleteRowsTest, AnErrorOfTheCallerEndsTheWalkOverMarks) {
  OpenStore();
  Push({1});
  Delete({1});
  WriteBack();
  EXPECT_TRUE(absl::IsCancelled(host_
                                    ->DropMarks(SpillShard(spec_, range_, {spec_.id, 3}), last(),
                                                [] { return absl::CancelledError(""); })
                                    .status()));
  EXPECT_EQ(StoredMarks(), 1u);
}

// Blocks of another server's rows bring marks that rows in memory do not show: they guard against
// records of the log from before the deletion.
TEST_P(DeleteRowsTest, AMarkGuardsAgainstOlderRecords) {
  OpenStore();
  Push({1, 2});
  Delete({2});
  Push({3});
  WriteBack();
  ASSERT_TRUE(host_->Flush().ok());
  CloseStore();
  host_ = nullptr;
  OpenStore();
  store_->BeginReplay();
  auto reader = host_->ReadShard(SpillShard(spec_, range_, {spec_.id, 3}), /*above=*/0);
  ASSERT_TRUE(reader.ok());
  for (bool more = true; more;) {
    const auto block = (*reader)->Next(1 << 20);
    ASSERT_TRUE(block.ok()) << block.status();
    more = !block->empty();
    if (!more) break;
    ASSERT_TRUE(store_->Warm(*block).ok());
  }
  store_->WarmedAll();
  Apply(1);  // the rows are ahead: the log has lost what is behind this record
  store_->EndReplay();
  CheckRows();
}

// Passes of a transfer arrive at another server: rows of a later pass replace those of an earlier
// one, or delete them. The log goes on above the last pass, whose rows are partly ahead of it.
TEST_P(DeleteRowsTest, RowsArriveInSeveralPasses) {
  const uint64_t seed = SeedFromEnvironment(20261128);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  const auto change = [&] {
    for (int i = 0; i < 8; ++i) {
      const uint64_t id = random.Uniform(kIds);
      random.OneIn(3) ? Delete({id}) : Push({id, (id + 5) % kIds, (id + 11) % kIds});
    }
    WriteBack();
  };
  const SpillShard shard(spec_, {0, 65536, 0, spec_.dim}, {spec_.id, 3});
  for (int round = 0; round < 8; ++round) {
    OpenStore();
    std::vector<std::string> blocks;
    Lsn pass = 0, first_pass = 0;
    for (int passes = 1 + round % 3; passes > 0; --passes) {
      Push({random.Uniform(kIds)});
      change();
      const Lsn above = std::exchange(pass, last());
      if (above == 0) first_pass = pass;
      if (random.OneIn(2)) change();
      auto reader = host_->ReadShard(shard, above);
      ASSERT_TRUE(reader.ok()) << reader.status();
      for (;;) {
        auto block = (*reader)->Next(300);
        ASSERT_TRUE(block.ok()) << block.status();
        if (block->empty()) break;
        blocks.push_back(*std::move(block));
      }
    }
    CloseStore();
    host_ = nullptr;
    std::filesystem::remove_all(dir_);
    OpenHost();
    auto writer = host_->ReceiveShard(spec_, range_, {spec_.id, 3}, first_pass);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const std::string& block : blocks) ASSERT_TRUE((*writer)->Write(block).ok());
    ASSERT_TRUE((*writer)->Finish("moved").ok());
    writer->reset();
    OpenStore();
    EXPECT_EQ(store_->meta(), "moved");
    store_->SetAppliedLsn(pass);
    store_->BeginReplay();
    const bool arrived = store_->TakeArrived();
    EXPECT_TRUE(GetParam() > 0 || arrived == (GetParam() == 0));
    EXPECT_FALSE(store_->TakeArrived()) << "once";
    if (GetParam() == 0) {
      EXPECT_EQ(store_->Stats().rows_resident, TwinAt(last()).rows().size());
    }
    for (Lsn lsn = pass + 1; lsn <= last(); ++lsn) Apply(lsn);
    store_->EndReplay();
    CheckRows();
    if (HasFatalFailure()) return;
    WriteBack();
    CloseStore();
  }
}

TEST_P(DeleteRowsTest, ThousandsOfPushesAndDeletesWithCrashes) {
  const uint64_t seed = SeedFromEnvironment(20261127);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  OpenStore();
  for (int step = 0; step < 300; ++step) {
    const uint64_t kind = random.Uniform(22);
    std::vector<uint64_t> ids;
    const uint64_t first = random.Uniform(kIds);
    for (uint64_t i = 0; i < 1 + random.Uniform(6); ++i) ids.push_back((first + i * 7) % kIds);
    if (kind < 10) {
      Push(ids);
    } else if (kind < 16) {
      Delete(ids);
    } else if (kind < 18) {
      WriteBack();
    } else if (kind < 19) {
      CheckRows();
    } else if (kind < 20 && last() > 0) {
      CrashAndReplay();
    } else if (last() > 0) {
      const Lsn through = random.Uniform(last() + 1);
      const uint64_t left = DropMarks(through);
      EXPECT_EQ(left, StoredMarks());
      if (through == last()) {
        EXPECT_EQ(StoredMarks(), 0u);
      }
    }
    if (HasFatalFailure()) return;
  }
  CheckRows();
}

INSTANTIATE_TEST_SUITE_P(Memory, DeleteRowsTest, ::testing::Values(0, 4, 20, -4, -20),
                         [](const auto& info) {
                           return absl::StrCat(info.param < 0 ? "Device" : "Rows",
                                               std::abs(info.param));
                         });

}  // namespace delete_rows_test
}  // namespace hotbed
