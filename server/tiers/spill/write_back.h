// Rows of one shard on their way to the spill tier. Confined to the shard's executor.
//
// A row that leaves the hot tier dirty, or is written back in place, is copied here, and of a
// deleted row the mark of its deletion. It stays here
// until the spill tier holds it and every read of the spill tier that began before has returned.
// So a read that returns an older version of a row never wins: its caller looks in the hot tier
// first, then here, and uses the read only if neither has the row.
//
// Writes run one at a time, in the order of the commits, so that an older version never overwrites
// a newer one. A failed write keeps its rows, and the next Pump retries it. The bytes are bounded
// over all shards of the server. A shard that has nothing to write may always add the rows of one
// operation, so no shard waits for another one, or for a read that itself waits for room.
#ifndef HOTBED_SERVER_TIERS_SPILL_WRITE_BACK_H_
#define HOTBED_SERVER_TIERS_SPILL_WRITE_BACK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "common/ring_queue.h"
#include "common/threads/executor.h"
#include "server/tiers/spill/io_gate.h"
#include "server/tiers/spill/io_queue.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

// Shared by the shards of a server.
struct WriteBackBudget {
  uint64_t bytes_max = 0;
  std::atomic<uint64_t> bytes{0};
};

class WriteBack {
 public:
  struct Wiring {
    SpillTier* spill = nullptr;
    IoQueue* io = nullptr;
    Executor* executor = nullptr;
    std::shared_ptr<IoGate> gate;
    WriteBackBudget* budget = nullptr;
    Lsn highest_lsn = 0;  // of the shard's rows in the spill tier, at open
    std::function<absl::Status(Lsn)> before_write_back;
    std::function<void()> progress;  // a write has ended; see error()
  };
  WriteBack(const SpillShard& shard, Wiring wiring);
  ~WriteBack();
  WriteBack(const WriteBack&) = delete;

  // Whether `rows` more may be added now.
  bool HasRoom(uint64_t rows) const;

  // Memory for `rows` rows. The caller fills positions and payloads, then commits the first `count`
  // of them before the next Reserve.
  struct Space {
    uint64_t* positions = nullptr;
    uint8_t* payloads = nullptr;
    uint32_t stride = 0;
  };
  Space Reserve(uint32_t rows);
  void Commit(uint32_t count, Lsn lsn, bool deleted = false);  // deleted: there are no payloads

  // Starts a write if rows wait and none is in flight; that clears error().
  void Pump();
  // For a caller that commits many rows and wants them written together, which costs less. True:
  // there is room for `rows` more, and no write begins until Gather has returned false or
  // StopGathering was called.
  bool Gather(uint64_t rows);
  void StopGathering();  // and begins the write

  // The newest version of a row. Valid until the executor's next task.
  struct Kept {
    bool here = false;
    const uint8_t* payload = nullptr;  // weights and state; null: the row was deleted
  };
  Kept Find(uint64_t position) const;
  bool empty() const { return latest_.empty(); }
  // Adds the positions of all rows that are here.
  void AddPositions(std::vector<uint64_t>* positions) const;

  // Commits so far, and how many of them have been written; written() <= committed().
  uint64_t committed() const { return committed_; }
  uint64_t written() const { return written_; }
  uint64_t rows_written() const { return rows_written_; }
  // The error of the last write; OK once one succeeds.
  const absl::Status& error() const { return error_; }

  // Announces a read of the spill tier before it begins; returns its number.
  uint64_t BeginFetch();
  void EndFetch(uint64_t fetch);
  // The number that the next BeginFetch will return.
  uint64_t next_fetch() const { return fetches_first_ + fetches_.size(); }

 private:
  struct Batch {
    std::unique_ptr<uint64_t[]> positions;
    std::unique_ptr<uint8_t[]> records;
    uint32_t rows_max = 0;
    uint32_t count = 0;
    Lsn lsn = 0;
    bool deleted = false;
    uint64_t bytes = 0;
    uint64_t fetches_before = 0;  // once written: only fetches below this number began before
  };
  struct Place {
    Batch* batch;
    uint32_t row;
  };

  static absl::Status WriteNow(const Wiring& wiring, const SpillShard& shard,
                               const std::vector<std::shared_ptr<Batch>>& batches, Lsn highest_lsn);
  uint64_t GatheredBytesMax() const;
  void OnWritten(size_t batches, const absl::Status& status);
  void Release();

  const SpillShard shard_;
  const Wiring wiring_;
  std::shared_ptr<Batch> open_;
  RingQueue<std::shared_ptr<Batch>> waiting_;   // not written yet, oldest first
  RingQueue<std::shared_ptr<Batch>> retained_;  // written, for older fetches
  absl::flat_hash_map<uint64_t, Place> latest_;
  RingQueue<uint8_t> fetches_;  // whether each has ended, from number fetches_first_ on
  uint64_t fetches_first_ = 1;
  uint64_t bytes_ = 0;
  Lsn highest_lsn_;  // highest ever written or in flight: replay may write lower ones
  uint64_t committed_ = 0;
  uint64_t written_ = 0;
  uint64_t rows_written_ = 0;
  bool writing_ = false;
  bool gathering_ = false;
  bool gathered_ = false;  // what waits may go as one write
  absl::Status error_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_WRITE_BACK_H_
