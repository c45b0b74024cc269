// Shared by the tests of the log: records that own their memory, and logs over a file system that
// can fail.
#ifndef HOTBED_TESTS_SHARD_LOG_LOG_FIXTURE_H_
#define HOTBED_TESTS_SHARD_LOG_LOG_FIXTURE_H_

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "gtest/gtest.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {

constexpr char kLogDir[] = "/log";
constexpr ShardId kShardA{1, 0};
constexpr ShardId kShardB{2, 7};

// A record with its own memory. Contents are a function of (shard, lsn), so that mixing records up
// shows.
struct TestRecord {
  RecordHeader header;
  std::vector<uint64_t> ids;
  std::vector<uint8_t> gradients;
  std::vector<const uint8_t*> rows;
  LogAppend append;
  absl::Status result = absl::UnknownError("not completed");
  int completions = 0;
};

inline std::unique_ptr<TestRecord> MakeRecord(ShardId shard, Lsn lsn, uint32_t ids, uint32_t dim,
                                              RowType type = RowType::kFp32) {
  auto r = std::make_unique<TestRecord>();
  RecordHeader& h = r->header;
  h.kind = ids == 0 ? RecordKind::kNoop : RecordKind::kPush;
  h.gradient_type = type;
  h.open = lsn % 2 == 0;
  h.last_part = lsn % 3 == 0;
  h.shard = shard;
  h.epoch = 3;
  h.lsn = lsn;
  h.session = 77 + shard.table;
  h.incarnation = 5;
  h.seq = lsn << 20;
  h.prev_seq = (lsn - 1) << 20;
  h.scalars = {0.5f, 0.25f, 0.125f};
  h.id_count = ids;
  h.dim = ids == 0 ? 0 : dim;
  const uint64_t row_bytes = ids == 0 ? 0 : RowWireBytes(type, dim);
  r->gradients.resize(ids * row_bytes);
  uint64_t state = shard.packed() * 1000003 + lsn;
  for (uint32_t i = 0; i < ids; ++i) r->ids.push_back((state + i) * 0x9e3779b97f4a7c15ull);
  for (uint8_t& b : r->gradients)
    b = static_cast<uint8_t>((state = state * 6364136223846793005ull + 1) >> 56);
  for (uint32_t i = 0; i < ids; ++i) r->rows.push_back(r->gradients.data() + i * row_bytes);
  return r;
}

// Hands `record` to the log; the result lands in the record.
inline void Append(ShardLog* log, TestRecord* record) {
  record->append.header = record->header;
  record->append.ids = record->ids.data();
  record->append.gradients = record->rows.data();
  record->append.done = [record](absl::Status status) {
    record->result = std::move(status);
    ++record->completions;
  };
  log->Append(&record->append);
}

inline absl::Status AppendCommit(ShardLog* log, TestRecord* record) {
  Append(log, record);
  log->Commit();
  EXPECT_EQ(record->completions, 1);
  return record->result;
}

inline absl::Status AppendCommit(ShardLog* log, ShardId shard, Lsn lsn, uint32_t ids = 3,
                                 uint32_t dim = 5) {
  const auto record = MakeRecord(shard, lsn, ids, dim);
  return AppendCommit(log, record.get());
}

// "shard lsn" of everything that replay finds, after comparing each record with what MakeRecord
// gives.
inline std::vector<std::string> Replayed(ShardLog* log) {
  std::vector<std::string> names;
  const absl::Status status = log->Replay([&](const RecordView& view) {
    const RecordHeader& h = view.header;
    const auto want = MakeRecord(h.shard, h.lsn, h.id_count, h.dim, h.gradient_type);
    EXPECT_EQ(h.kind, want->header.kind);
    EXPECT_EQ(h.open, want->header.open);
    EXPECT_EQ(h.last_part, want->header.last_part);
    EXPECT_EQ(h.epoch, want->header.epoch);
    EXPECT_EQ(h.session, want->header.session);
    EXPECT_EQ(h.incarnation, want->header.incarnation);
    EXPECT_EQ(h.seq, want->header.seq);
    EXPECT_EQ(h.prev_seq, want->header.prev_seq);
    EXPECT_EQ(h.scalars.learning_rate, want->header.scalars.learning_rate);
    EXPECT_EQ(h.scalars.bias_correction1, want->header.scalars.bias_correction1);
    EXPECT_EQ(h.scalars.bias_correction2, want->header.scalars.bias_correction2);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.ids) % 8, 0);
    EXPECT_TRUE(std::equal(want->ids.begin(), want->ids.end(), view.ids));
    EXPECT_TRUE(std::equal(want->gradients.begin(), want->gradients.end(), view.gradients));
    names.push_back(absl::StrCat(h.shard.ToString(), " ", h.lsn));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return names;
}

inline std::string NameOf(ShardId shard, Lsn lsn) {
  return absl::StrCat(shard.ToString(), " ", lsn);
}

class LogTest : public ::testing::Test {
 protected:
  LogTest() : files_(20260131) {
    options_.dir = kLogDir;
    options_.sync_interval_ms = -1;
  }

  std::unique_ptr<ShardLog> Open() {
    absl::StatusOr<std::unique_ptr<ShardLog>> log = ShardLog::Open(options_, &files_, &clock_);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? *std::move(log) : nullptr;
  }
  std::string SegmentPath(uint64_t sequence) {
    return absl::StrCat(kLogDir, "/", SegmentName(sequence));
  }
  // The path of the newest segment, and whether it is written over an older one.
  std::string Newest() {
    std::string newest;
    const std::vector<std::string> names = *files_.List(kLogDir);
    for (const std::string& name : names) {
      if (ParseSegmentName(name).has_value()) newest = absl::StrCat(kLogDir, "/", name);
    }
    return newest;
  }
  bool Reused() { return DecodeSegmentHeader(*files_.ReadAll(Newest()))->reused; }
  std::string Contents(uint64_t sequence) { return *files_.ReadAll(SegmentPath(sequence)); }
  // Replaces a segment as kill -9 or a broken disk would leave it.
  void SetContents(uint64_t sequence, const std::string& bytes) {
    ASSERT_TRUE(files_.WriteAtomically(SegmentPath(sequence), bytes).ok());
  }

  FaultFileSystem files_;
  ManualClock clock_;
  ShardLogOptions options_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_LOG_LOG_FIXTURE_H_
