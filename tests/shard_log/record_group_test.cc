#include "server/shard_log/record_group.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/files/crc32c.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "tests/common/test_seed.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace record_group_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ShardId kShardC{3, 1};
constexpr uint64_t kRecordsEnd = 64 + 128 + 2 * (8 + 12) + 128 + 128 + 8 + 8;

// Made by the version before, which had no groups: 1/0 LSN 1 of two rows, 2/7 LSN 4 without rows,
// 2/7 LSN 5 of one row of fp16.
constexpr char kSegmentOfVersion4[] =
    "484f5442444c4f47040000004000000001000000000000000100000000000000000000000000000000000000"
    "00000000000000000000000000000000ca4373eea80000009fb746c36373b08b010000000000000001000000"
    "030000000000000001000000000000004e000000000000000500000000000000000010000000000000000000"
    "000000000000003f0000803e0000003e0200000003000000000000000000803f000000000000000000000000"
    "88776655443322110000000000000000157c4a7f385dee672af894fef1d62506616426d3dd77a16f952e7659"
    "3441de08aa45318ccab1667e80000000505afa80d8ea82a20401000007000000020000000300000000000000"
    "04000000000000004f000000000000000500000000000000000040000000000000003000000000000000003f"
    "0000803e0000003e0000000000000000000000000000803f0000000000000000000000008877665544332211"
    "000000000000000090000000c1868fe055b22fa0010001000700000002000000030000000000000005000000"
    "000000004f000000000000000500000000000000000050000000000000004000000000000000003f0000803e"
    "0000003e0100000001000000000000000000803f000000000000000000000000887766554433221100000000"
    "00000000e2a47400b921e790a801000000000000";

// A record, a group of four parts of three shards, and a record.
class GroupTest : public LogTest {
 protected:
  GroupTest() {
    auto log = Open();
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 1).ok());
    begin_ = log->GetUsage().bytes;
    records_.push_back(MakeRecord(kShardA, 2, 3, 5));
    records_.push_back(MakeRecord(kShardB, 1, 1, 5));
    records_.push_back(MakeRecord(kShardC, 9, 2, 7, RowType::kFp16));
    records_.push_back(MakeRecord(kShardA, 3, 0, 0));
    for (const auto& record : records_) Append(log.get(), record.get());
    log->Commit();
    for (const auto& record : records_) EXPECT_TRUE(record->result.ok()) << record->result;
    end_ = log->GetUsage().bytes;
    EXPECT_TRUE(AppendCommit(log.get(), kShardB, 2).ok());
    EXPECT_EQ(log->GetUsage().writes, 3);
    whole_ = Contents(1);
    uint64_t payload = 0;
    for (const auto& record : records_)
      payload += 8 * record->ids.size() + record->gradients.size();
    padding_ = payload % 8 == 0 ? 0 : 8 - payload % 8;
    payload_ = end_ - padding_ - payload;
  }

  std::vector<std::string> NamesOfGroup() const {
    std::vector<std::string> names;
    for (const auto& record : records_) {
      names.push_back(NameOf(record->header.shard, record->header.lsn));
    }
    return names;
  }

  std::vector<std::unique_ptr<TestRecord>> records_;
  std::string whole_;
  uint64_t begin_ = 0;  // of the group
  uint64_t end_ = 0;
  uint64_t payload_ = 0;  // where the ids of the group begin
  uint64_t padding_ = 0;
};

TEST_F(GroupTest, ItsPartsAreReadAsRecords) {
  std::vector<std::string> want = {NameOf(kShardA, 1)};
  for (const std::string& name : NamesOfGroup()) want.push_back(name);
  want.push_back(NameOf(kShardB, 2));
  auto log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(Replayed(log.get()), want);
  uint64_t alone = 0;
  for (const auto& record : records_) alone += RecordBytes(record->header);
  EXPECT_LT(end_ - begin_, alone);
}

TEST_F(GroupTest, ATornGroupIsCutWhole) {
  for (uint64_t end = begin_ + 1; end < end_; ++end) {
    SetContents(1, whole_.substr(0, end));
    auto log = Open();
    EXPECT_TRUE(log->damage().empty()) << end;
    EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1)));
    EXPECT_EQ(log->GetUsage().torn_bytes, end - begin_);
    EXPECT_EQ(Contents(1).size(), begin_);
  }
}

// Whatever byte is hit, the damage names each shard whose part is not read.
TEST_F(GroupTest, DamageIsThatOfThePartsThatItHits) {
  std::set<std::vector<ShardId>> named;
  for (uint64_t at = begin_; at < end_ - padding_; ++at) {
    std::string bytes = whole_;
    bytes[at] ^= 0x10;
    SetContents(1, bytes);
    auto log = Open();
    ASSERT_EQ(log->damage().size(), 1) << at;
    const ShardLog::Damage& damage = log->damage()[0];
    EXPECT_THAT(damage.message, HasSubstr(absl::StrCat("damaged at offset ", begin_)));
    const std::vector<std::string> found = Replayed(log.get());
    EXPECT_EQ(found.back(), NameOf(kShardB, 2));
    for (const auto& record : records_) {
      const ShardId shard = record->header.shard;
      const std::string name = NameOf(shard, record->header.lsn);
      const bool read = std::find(found.begin(), found.end(), name) != found.end();
      EXPECT_TRUE(read || damage.all_shards ||
                  std::find(damage.shards.begin(), damage.shards.end(), shard) !=
                      damage.shards.end())
          << name << " is lost without a word, with the byte at " << at;
    }
    if (damage.all_shards) continue;
    named.insert(damage.shards);
    EXPECT_EQ(found.size(), 2 + records_.size() - damage.shards.size());
    EXPECT_THAT(damage.message, HasSubstr(damage.shards[0].ToString()));
    EXPECT_EQ(damage.end, (LogPosition{1, end_}));
  }
  EXPECT_EQ(named, (std::set<std::vector<ShardId>>{{kShardA}, {kShardB}, {kShardC}}));
}

TEST_F(GroupTest, DamageOfSeveralPartsNamesAll) {
  std::string bytes = whole_;
  const std::string zeros(end_ - payload_, '\0');
  bytes.replace(payload_, zeros.size(), zeros);
  SetContents(1, bytes);
  auto log = Open();
  ASSERT_EQ(log->damage().size(), 1);
  EXPECT_THAT(log->damage()[0].shards, ElementsAre(kShardA, kShardB, kShardC));
  EXPECT_THAT(log->damage()[0].message, HasSubstr("(shard 1/0, LSN 2; shard 2/7, LSN 1; "));
}

// After a reboot the log ends before a group that is not whole, so none of its parts is kept.
TEST_F(GroupTest, AGroupThatWasNotSyncedIsCutWholeAfterAReboot) {
  options_.rebooted = true;
  std::string bytes = whole_;
  bytes[end_ - 9] ^= 1;  // of the last part with rows
  SetContents(1, bytes);
  auto log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_THAT(Replayed(log.get()), ElementsAre(NameOf(kShardA, 1)));
  EXPECT_EQ(Contents(1).size(), begin_);
}

TEST_F(GroupTest, APartReplacesAnEarlierOneOfItsGroup) {
  auto log = Open();
  const auto before = MakeRecord(kShardC, 10, 1, 5);
  const auto after = MakeRecord(kShardC, 10, 2, 5);
  const auto other = MakeRecord(kShardA, 4, 1, 5);
  after->header.epoch = 4;
  for (TestRecord* const record : {before.get(), other.get(), after.get()}) {
    Append(log.get(), record);
  }
  log->Commit();
  log = Open();
  std::vector<Epoch> epochs;
  std::vector<LogPosition> places;
  ASSERT_TRUE(log->Replay([&](const RecordView& view) {
                   places.push_back(view.at);
                   if (view.header.lsn == 10) epochs.push_back(view.header.epoch);
                   return absl::OkStatus();
                 })
                  .ok());
  EXPECT_THAT(epochs, ElementsAre(4));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  EXPECT_EQ(std::unique(places.begin(), places.end()), places.end());
}

TEST_F(GroupTest, AFailedGroupFailsForEachOfItsShards) {
  auto log = Open();
  files_.FailAppends(1);
  const auto a = MakeRecord(kShardA, 4, 3, 5);
  const auto b = MakeRecord(kShardB, 3, 3, 5);
  Append(log.get(), a.get());
  Append(log.get(), b.get());
  log->Commit();
  EXPECT_FALSE(a->result.ok());
  EXPECT_FALSE(b->result.ok());
  ASSERT_TRUE(log->TryResume().ok());
  EXPECT_FALSE(AppendCommit(log.get(), kShardA, 5).ok());
  EXPECT_FALSE(AppendCommit(log.get(), kShardB, 4).ok());
  EXPECT_EQ(Contents(1), whole_);
  EXPECT_TRUE(AppendCommit(log.get(), kShardA, 4).ok());
  EXPECT_TRUE(AppendCommit(log.get(), kShardB, 3).ok());
}

// A backup has whole records from its primary.
TEST_F(GroupTest, RecordsThatCameEncodedArePartsToo) {
  auto log = Open();
  const auto made = MakeRecord(kShardB, 3, 3, 3, RowType::kFp16);  // with padding
  std::string bytes(RecordBytes(made->header), 'x');
  EncodeRecord(made->header, made->ids.data(), made->rows.data(), bytes.data());
  TestRecord encoded;
  encoded.header = made->header;
  encoded.append.encoded = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const auto plain = MakeRecord(kShardA, 4, 3, 5);
  Append(log.get(), &encoded);
  Append(log.get(), plain.get());
  log->Commit();
  EXPECT_EQ(log->GetUsage().writes, 1);
  log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_THAT(Replayed(log.get()),
              ::testing::IsSupersetOf({NameOf(kShardB, 3), NameOf(kShardA, 4)}));
}

TEST_F(LogTest, ALogOfTheVersionBeforeIsReadAndGoesOnInANewSegment) {
  ASSERT_TRUE(files_.MakeDir(kLogDir).ok());
  const std::string old = absl::HexStringToBytes(kSegmentOfVersion4);
  ASSERT_EQ(old.size(), kRecordsEnd);
  SetContents(1, old);
  std::vector<std::string> want = {NameOf(kShardA, 1), NameOf(kShardB, 4), NameOf(kShardB, 5)};
  {
    auto log = Open();
    EXPECT_TRUE(log->damage().empty());
    EXPECT_EQ(Replayed(log.get()), want);
    const auto a = MakeRecord(kShardA, 2, 1, 3);
    const auto b = MakeRecord(kShardB, 6, 1, 3);
    Append(log.get(), a.get());
    Append(log.get(), b.get());
    log->Commit();
    EXPECT_TRUE(b->result.ok()) << b->result;
  }
  EXPECT_EQ(Contents(1), old) << "its version says that it has no groups";
  want.push_back(NameOf(kShardA, 2));
  want.push_back(NameOf(kShardB, 6));
  auto log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(Replayed(log.get()), want);
  EXPECT_EQ(log->GetUsage().segments, 2);
  // Its torn end is still cut.
  log = nullptr;
  ASSERT_TRUE(files_.Delete(SegmentPath(2)).ok());
  SetContents(1, old.substr(0, old.size() - 1));
  log = Open();
  EXPECT_TRUE(log->damage().empty());
  EXPECT_EQ(Replayed(log.get()).size(), 2);
}

RecordHeader RandomHeader(Random* random, const RecordHeader& before) {
  RecordHeader h = random->Uniform(3) == 0 ? RecordHeader() : before;
  h.kind = static_cast<RecordKind>(1 + random->Uniform(7));
  h.shard = {static_cast<uint32_t>(random->Uniform(5)), static_cast<uint32_t>(random->Uniform(9))};
  h.open = random->Uniform(2) == 0;
  h.staged = random->Uniform(2) == 0;
  h.assign = random->Uniform(2) == 0;
  h.shows = random->Uniform(2) == 0;
  h.gradient_type = static_cast<RowType>(random->Uniform(3));
  if (random->Uniform(4) == 0) h.epoch = random->Uniform(uint64_t{1} << 60);
  if (random->Uniform(4) == 0) h.session = random->Uniform(uint64_t{1} << 60);
  if (random->Uniform(4) == 0) h.incarnation = random->Uniform(9);
  if (random->Uniform(4) == 0) h.scalars.clip_value = static_cast<float>(random->Uniform(100));
  if (random->Uniform(4) == 0) h.scalars.time_s = static_cast<uint32_t>(random->Uniform(100));
  h.lsn = random->Uniform(uint64_t{1} << 50);
  h.seq = random->Uniform(uint64_t{1} << 40);
  const uint64_t distances[] = {0, 1, UINT32_MAX, uint64_t{1} << 32, h.seq};
  h.prev_seq = h.seq - std::min(h.seq, distances[random->Uniform(5)]);
  if (random->Uniform(9) == 0) h.prev_seq = h.seq + 1;
  h.scalars.step = h.seq >> kRecordStepShift;
  h.id_count = static_cast<uint32_t>(random->Uniform(4));
  h.dim = static_cast<uint32_t>(random->Uniform(4));
  return h;
}

// The fields of a record's header, as its own encoding has them.
std::string BytesOf(const RecordHeader& header) {
  std::string bytes(kRecordHeaderBytes, 0);
  EncodeRecordHeader(header, 0, {}, bytes.data());
  return bytes;
}

TEST(RecordGroupTest, AnyHeadersComeBackAndTakeNoMoreThanAlone) {
  const TestSeed seed(20261128);
  Random random(seed.value());
  GroupTable table;
  for (int round = 0; round < 500; ++round) {
    std::vector<RecordHeader> headers(2 + random.Uniform(6));
    std::vector<std::string> payloads;
    std::string ids;
    std::string gradients;
    uint64_t alone = 0;
    RecordHeader before;
    table.Clear();
    for (RecordHeader& header : headers) {
      before = header = RandomHeader(&random, before);
      std::string own_ids(8ull * header.id_count, 'i');
      std::string own(GradientBytes(header), 'g');
      for (char& c : own) c = static_cast<char>(random.Uniform(256));
      alone += RecordBytes(header);
      std::string payload = own_ids + own;
      payload.resize(RecordBytes(header) - kRecordHeaderBytes);
      table.Add(header, Crc32c(payload.data(), payload.size()));
      ids += own_ids;
      payloads.push_back(own);
      gradients += own;
    }
    const absl::Span<const char> head = table.Seal({.synced_bytes = 64, .run = 7, .segment = 12});
    const std::string group = absl::StrCat(absl::string_view(head.data(), head.size()), ids,
                                           gradients, std::string(table.padding(), '\0'));
    ASSERT_EQ(group.size(), table.length());
    EXPECT_LE(group.size(), alone);
    std::vector<uint64_t> words(group.size() / 8);
    std::memcpy(words.data(), group.data(), group.size());
    const char* const bytes = reinterpret_cast<const char*>(words.data());
    EXPECT_FALSE(DecodeGroupHeader(bytes, 11).has_value());
    const auto decoded = DecodeGroupHeader(bytes, 12);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->origin.run, 7);
    EXPECT_EQ(decoded->origin.synced_bytes, 64);
    EXPECT_EQ(decoded->header_crc, table.header_crc());
    EXPECT_EQ(LikelyGroupLength(bytes, 12), group.size());
    EXPECT_FALSE(DecodeRecordHeader(bytes, 12).has_value());
    std::vector<GroupPart> parts;
    ASSERT_TRUE(DecodeGroup(*decoded, bytes, &parts));
    ASSERT_EQ(parts.size(), headers.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(BytesOf(parts[i].header), BytesOf(headers[i])) << "part " << i;
      EXPECT_EQ(parts[i].header.scalars.step, headers[i].scalars.step);
      EXPECT_TRUE(parts[i].intact);
      EXPECT_EQ(std::memcmp(parts[i].gradients, payloads[i].data(), payloads[i].size()), 0);
    }
  }
}

}  // namespace record_group_test
}  // namespace hotbed
