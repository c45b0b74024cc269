// A shard host over a real log and real tiers in a temporary directory, with the coordinator and a
// client played by hand.
#ifndef HOTBED_TESTS_SHARD_HOST_FIXTURE_H_
#define HOTBED_TESTS_SHARD_HOST_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/host/shard_host.h"
#include "server/shard/request/requests.h"
#include "tests/tiers/pinned_rows.h"

namespace hotbed {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A pull or push that the test waits for, and the storage behind its segments.
struct TestPull : PullWork {
  void Done() override {
    uint8_t* from = memory != nullptr ? memory->data() : nullptr;
    for (size_t s = 0; from != nullptr && s < rows.size(); from += rows[s++].size()) {
      std::copy_n(from, rows[s].size(), rows[s].begin());
    }
    done.Notify();
  }
  std::unique_ptr<PinnedRows> memory;  // of all rows, as a server has it; or null
  std::vector<std::vector<uint64_t>> ids;
  std::vector<std::vector<uint8_t>> rows;
  std::vector<std::vector<uint8_t>> flags;
  absl::Notification done;
};

struct TestPush : PushWork {
  void Done() override { done.Notify(); }
  std::vector<std::vector<uint64_t>> ids;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<const uint8_t*>> rows;
  std::vector<ShardId> lanes;  // of the segments
  absl::Notification done;
};

// After a test has opened the rows of a server that does not run: MARKS says, as the server itself
// would have said, that they may have another manifest by now.
void MarkRowsOpened(const std::string& data_dir);

TableSpec TestTable(TableId id, const std::string& name, uint64_t rows, uint32_t dim,
                    OptimizerKind optimizer);

// One life of a server, and the coordinator's knowledge about it. Tables have `shards` shards per
// column slice, slice by slice.
class TestServer {
 public:
  TestServer(ShardHostOptions options, const std::vector<TableSpec>& tables, uint32_t shards);
  ~TestServer() { Kill(); }

  // For the hosts that are opened from now on; the real one otherwise. The clock outlives them.
  // With a clock that stands, shards are not ticked, so the log writes only when it is asked to.
  void UseClock(const Clock* clock) { clock_ = clock; }
  // Opens the host, assigns all tables under a new epoch and activates them.
  void Start();
  void Open();  // without assigning
  absl::Status TryOpen();
  // This server opens a copy of the other's directory, with the epochs after the other's.
  void ContinueFrom(const TestServer& other);
  void Assign();  // the next epoch, activated
  void Activate();
  // The coordinator cuts the shard at `at`; the new shard's id. Told or not: the next assignment
  // tells it.
  ShardId Cut(ShardId shard, uint64_t at, bool tell = true);
  // The coordinator merges two neighbours, of which the host has said where their logs end.
  void Merge(ShardId lower, const ShardHost::MergeReady& ready, ShardId upper);
  // The table changes and the host is told. Told or not, later assignments tell it.
  void Alter(TableId table, const TableChange& change, bool tell = true);
  void Kill() { host_.reset(); }  // as kill -9 leaves the directory
  absl::Status Stop();            // an orderly shutdown

  ShardHost* host() { return host_.get(); }
  const std::vector<ShardRecord>& records() const { return records_; }
  ShardRecord& record(ShardId shard);
  ShardId ShardOf(TableId table, uint64_t id) const;  // of the first column slice
  // The lane of that shard, by the shard that it began as.
  ShardId LaneOf(TableId table, uint64_t id) const;
  // The shard of another slice that has what `in_first` has of the first.
  ShardId OfSlice(ShardId in_first, uint32_t slice) const {
    return {in_first.table, in_first.index + slice * shards_};
  }
  const TableSpec& table(TableId id) const;
  uint32_t shards() const { return shards_; }

  // One segment per lane of a shard, in their order; `gradients` has dim floats per id, and the
  // shard of each slice gets its columns of them.
  std::unique_ptr<TestPush> MakePush(SessionId session, Incarnation incarnation, TableId table,
                                     const std::vector<uint64_t>& ids,
                                     const std::vector<float>& gradients);
  void Run(TestPush* push);
  std::unique_ptr<TestPull> MakePull(TableId table, const std::vector<uint64_t>& ids);
  void Run(TestPull* pull);
  // Rows of the ids, fp32, in their order; fails the test unless all segments are OK.
  std::vector<float> Pull(TableId table, const std::vector<uint64_t>& ids);

 private:
  ShardHostOptions options_;
  const Clock* clock_ = Clock::Real();
  std::map<TableId, TableSpec> tables_;   // as they began: clients read them on their threads
  std::map<TableId, TableSpec> current_;  // with their changes
  uint32_t shards_;
  std::vector<ShardRecord> records_;
  std::unique_ptr<ShardHost> host_;
  Epoch epoch_ = 0;
  uint64_t revision_ = 0;
  Incarnation incarnation_ = 0;
};

// A client's chain of sequences over all shards, with retries.
class TestClient {
 public:
  TestClient(TestServer* server, SessionId session, Incarnation incarnation = 1)
      : server_(server), session_(session), incarnation_(incarnation) {}

  // Pushes one part of a step and waits; every segment must be OK. Segments carry seq = step << 20
  // | part.
  void Push(TableId table, uint64_t step, const std::vector<uint64_t>& ids,
            const std::vector<float>& gradients, uint64_t part = 1);
  // Deletes rows as such a part.
  void Delete(TableId table, uint64_t step, const std::vector<uint64_t>& ids, uint64_t part = 1) {
    Push(table, step, ids, {}, part);
  }
  // The same push as the last one again, as a client does that never got the answer.
  void ResendLast();
  // `part` was cut from `shard`: its chain goes on there, too.
  void LearnCut(ShardId shard, ShardId part);
  void Restart() {
    incarnation_ += 1;
    chains_.clear();
  }
  Incarnation incarnation() const { return incarnation_; }

 private:
  struct Sent {
    TableId table;
    std::vector<uint64_t> ids;
    std::vector<float> gradients;  // none: a delete
    uint64_t seq;
    std::map<uint64_t, std::pair<uint64_t, bool>> chain;  // by lane: prev_seq, open
  };
  void Send(const Sent& sent);

  TestServer* server_;
  SessionId session_;
  Incarnation incarnation_;
  std::map<uint64_t, uint64_t> chains_;  // lane -> last sequence sent
  Sent last_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_HOST_FIXTURE_H_
