// Rows that have changed since an LSN, found by the journal of their shard.
#include "server/tiers/spill/row_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_tier.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_journal_test {

constexpr uint64_t kRows = 20'000;

class RowJournalTest : public ::testing::Test {
 protected:
  RowJournalTest() : random_(seed_.value()) {
    dir_ = ::testing::TempDir() + "/row_journal_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    spec_.id = 7;
    spec_.rows = 3 * kRows;
    spec_.dim = 2;
    Open();
  }
  ~RowJournalTest() override {
    tier_ = nullptr;
    std::filesystem::remove_all(dir_);
  }
  void Open() {
    tier_ = nullptr;
    KvOptions options;
    options.wal = false;
    options.memtable_bytes = 1 << 20;
    options.block_cache_bytes = 1 << 20;
    auto tier = SpillTier::Open(dir_, options);
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
  }
  SpillShard Shard(uint32_t index) const {
    return SpillShard(spec_, {index * kRows, (index + 1) * kRows, 0, spec_.dim}, {spec_.id, index});
  }
  std::vector<uint64_t> Some(uint32_t index, uint64_t count) {
    std::vector<uint64_t> positions;
    for (uint64_t i = 0; i < count; ++i) {
      positions.push_back(index * kRows + random_.Uniform(kRows));
    }
    return positions;
  }
  // A write-back of `positions` in any order, some twice, in parts with LSNs of their own.
  void Write(uint32_t index, const std::vector<uint64_t>& positions, Lsn low, Lsn high) {
    const SpillShard shard = Shard(index);
    std::string records(positions.size() * shard.record_bytes(), '\1');
    const uint32_t cut = static_cast<uint32_t>(random_.Uniform(positions.size() + 1));
    auto* const first = reinterpret_cast<uint8_t*>(records.data());
    const SpillRows parts[] = {
        {positions.data(), first, cut, low},
        {positions.data() + cut, first + uint64_t{cut} * shard.record_bytes(),
         static_cast<uint32_t>(positions.size()) - cut, high}};
    highest_[index] = std::max(highest_[index], high);
    ASSERT_TRUE(tier_->Write(shard, parts, highest_[index]).ok());
    for (size_t i = 0; i < positions.size(); ++i) {
      twin_[index][positions[i]] = i < cut ? low : high;
    }
  }
  // The rows come in files, as from another server.
  void Install(uint32_t index, Lsn lsn) {
    const SpillShard shard = Shard(index);
    ASSERT_TRUE(tier_->Delete(shard).ok());
    twin_[index].clear();
    std::vector<uint64_t> positions = Some(index, 1000);
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    const std::vector<uint8_t> payloads(positions.size() * shard.payload_bytes);
    auto writer = tier_->NewWriter(shard, 1);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->WriteValues(positions, payloads.data(), lsn).ok());
    ASSERT_TRUE((*writer)->Finish("meta").ok());
    for (const uint64_t position : positions) twin_[index][position] = lsn;
    highest_[index] = lsn;
  }
  std::map<uint64_t, Lsn> Read(uint32_t index, Lsn above) {
    std::map<uint64_t, Lsn> rows;
    auto reader = tier_->Read(Shard(index), above);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (;;) {
      auto bytes = (*reader)->Next(100 + random_.Uniform(10'000));
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok() || bytes->empty()) return rows;
      auto block = RowBlock::Parse(*bytes, Shard(index).record_bytes());
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint32_t row = 0; row < block->rows(); ++row) {
        rows[block->position(row)] =
            SpillTier::LsnOf(reinterpret_cast<const uint8_t*>(block->record(row).data()));
      }
    }
  }
  std::map<uint64_t, Lsn> TwinAbove(uint32_t index, Lsn above) const {
    std::map<uint64_t, Lsn> rows;
    for (const auto& [position, lsn] : twin_[index]) {
      if (lsn > above) rows[position] = lsn;
    }
    return rows;
  }
  // What the journal says; nothing: it does not go back that far.
  std::optional<std::vector<uint64_t>> Above(uint32_t index, Lsn above) {
    auto positions = RowJournals::Above(Shard(index), above, 0, UINT64_MAX, tier_->store());
    EXPECT_TRUE(positions.ok()) << positions.status();
    return positions.ok() ? *std::move(positions) : std::nullopt;
  }

  const TestSeed seed_{42};
  Random random_;
  std::string dir_;
  TableSpec spec_;
  std::unique_ptr<SpillTier> tier_;
  std::map<uint64_t, Lsn> twin_[3];
  Lsn highest_[3] = {};
};

// Small and large writes, replayed LSNs, files from elsewhere, deletions, flushes, restarts, tables
// that go back to a frozen copy: whatever the LSN, the rows above it are those of a map.
TEST_F(RowJournalTest, FindsWhatAMapWouldFind) {
  Lsn lsn = 0;
  int named = 0;
  int not_named = 0;
  std::map<uint64_t, Lsn> frozen[3];
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const auto index = static_cast<uint32_t>(random_.Uniform(3));
    lsn += random_.Uniform(4);
    const uint64_t act = random_.Uniform(40);
    if (act == 0) {
      ASSERT_TRUE(tier_->Delete(Shard(index)).ok());
      twin_[index].clear();
      highest_[index] = 0;
    } else if (act == 1) {
      Install(index, ++lsn);
    } else if (act == 2) {
      ASSERT_TRUE(tier_->Flush().ok());
      Open();
    } else if (act == 3) {
      ASSERT_TRUE(tier_->Freeze().ok());
      std::copy(twin_, twin_ + 3, frozen);
    } else if (act == 4) {
      ASSERT_TRUE(tier_->RestoreTable(spec_.id).ok());
      std::copy(frozen, frozen + 3, twin_);
    } else {
      const Lsn high = random_.OneIn(10) ? 1 + random_.Uniform(lsn + 1) : ++lsn;
      Write(index, Some(index, 1 + random_.Uniform(random_.OneIn(9) ? 3000 : 60)),
            high - random_.Uniform(high), high);
    }
    for (uint32_t i = 0; i < 3; ++i) {
      const Lsn above = 1 + (random_.OneIn(2) ? random_.Uniform(lsn + 1)
                                              : lsn - std::min<Lsn>(lsn, random_.Uniform(9)));
      EXPECT_EQ(Read(i, above), TwinAbove(i, above)) << "shard " << i << " above " << above;
      ++(Above(i, above).has_value() ? named : not_named);
    }
  }
  EXPECT_GT(named, 100);
  EXPECT_GT(not_named, 100);
}

// The same few rows, written again and again, stay named; so many others that the journal is over
// its limit make it forget the oldest, and it never has more than twice its limit.
TEST_F(RowJournalTest, KeepsTheNewestWithinItsLimit) {
  for (Lsn lsn = 1; lsn <= 300; ++lsn) Write(0, Some(0, 50), lsn, lsn);
  const auto since = Above(0, 290);
  ASSERT_TRUE(since.has_value());
  EXPECT_LE(since->size(), 500u);
  const std::vector<uint64_t> hot = Some(1, 100);
  Write(1, Some(1, 10), 1, 1);
  for (Lsn lsn = 2; lsn <= 400; ++lsn) Write(1, hot, lsn, lsn);
  const auto all = Above(1, 0);
  ASSERT_TRUE(all.has_value()) << "40,000 positions, of which few are different";
  EXPECT_LE(all->size(), 110u);
  Write(2, Some(2, 3000), 1, 1);
  Write(2, Some(2, 3000), 2, 2);
  Write(2, Some(2, 10), 3, 3);
  Write(2, Some(2, 10), 4, 4);
  EXPECT_FALSE(Above(2, 0).has_value());
  EXPECT_TRUE(Above(2, 2).has_value());
  uint64_t bytes = 0;
  const SpillKey first = MakeSpillKey(spec_.id, kJournalSlice, 0);
  const SpillKey limit = MakeSpillKey(spec_.id, kJournalSlice, 3);
  ASSERT_TRUE(tier_->store()
                  ->Scan(View(first), View(limit),
                         [&](absl::string_view, absl::string_view value) {
                           bytes += value.size();
                           return true;
                         })
                  .ok());
  EXPECT_LT(bytes, 3 * 2 * kJournalPositionsMin * 4);
}

// A part of a shard that was cut has the rows of the whole, and no journal of them.
TEST_F(RowJournalTest, APartBeginsWithoutAJournal) {
  Write(0, Some(0, 500), 4, 5);
  ASSERT_TRUE(tier_->WriteMeta(Shard(0), "meta").ok());
  SpillShard part = SpillShard(spec_, {kRows / 2, kRows, 0, spec_.dim}, {spec_.id, 9});
  ASSERT_TRUE(tier_->InheritMeta(Shard(0), part).ok());
  std::string record(part.record_bytes(), '\1');
  const uint64_t position = kRows - 1;
  const SpillRows rows = {&position, reinterpret_cast<uint8_t*>(record.data()), 1, 6};
  ASSERT_TRUE(tier_->Write(part, {&rows, 1}, 6).ok());
  auto early = RowJournals::Above(part, 4, 0, UINT64_MAX, tier_->store());
  ASSERT_TRUE(early.ok());
  EXPECT_FALSE(early->has_value()) << "rows of the whole have LSN 5";
  auto late = RowJournals::Above(part, 5, 0, UINT64_MAX, tier_->store());
  ASSERT_TRUE(late.ok() && late->has_value());
  EXPECT_EQ(**late, std::vector<uint64_t>{position});
}

TEST_F(RowJournalTest, DamageIsTold) {
  Write(0, Some(0, 50), 1, 1);
  auto batch = tier_->store()->NewBatch();
  std::string key(View(MakeSpillKey(spec_.id, kJournalSlice, 0)));
  key += std::string(7, '\0') + '\1';
  const auto stored = tier_->store()->Get(key);
  ASSERT_TRUE(stored.ok()) << stored.status();
  batch->Put(key, stored->substr(0, stored->size() - 6) + stored->substr(stored->size() - 5));
  ASSERT_TRUE(tier_->store()->Write(batch.get()).ok());
  EXPECT_TRUE(
      absl::IsDataLoss(RowJournals::Above(Shard(0), 0, 0, UINT64_MAX, tier_->store()).status()));
}

}  // namespace row_journal_test
}  // namespace hotbed
