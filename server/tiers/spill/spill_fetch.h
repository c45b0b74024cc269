// One read of the spill tier for the rows that an operation found in no memory, cut into parts that
// the I/O threads read in parallel. Started and ended on the shard's executor.
#ifndef HOTBED_SERVER_TIERS_SPILL_SPILL_FETCH_H_
#define HOTBED_SERVER_TIERS_SPILL_SPILL_FETCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/threads/executor.h"
#include "server/tiers/spill/io_gate.h"
#include "server/tiers/spill/io_queue.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

class SpillFetch {
 public:
  struct Part {
    std::vector<uint32_t> picks;      // numbers of the operation's ids, in order of position
    std::vector<uint32_t> row_of;     // the index in `positions` of picks[k]
    std::vector<uint64_t> positions;  // sorted, unique
    std::vector<uint8_t> records;
    std::vector<uint8_t> found;
    absl::Status status;

    // The record at positions[r], which may be the mark of a deleted row; null: the row is not in
    // the spill tier.
    const uint8_t* RecordOf(uint32_t r, uint32_t record_bytes) const {
      return found[r] ? records.data() + uint64_t{record_bytes} * r : nullptr;
    }
    // Weights and state at positions[r]; null: the row exists nowhere in the spill tier.
    const uint8_t* PayloadOf(uint32_t r, uint32_t record_bytes) const {
      return found[r] == kRowThere ? SpillTier::PayloadOf(RecordOf(r, record_bytes)) : nullptr;
    }
  };
  struct Wiring {
    SpillTier* spill = nullptr;
    IoQueue* io = nullptr;
    Executor* executor = nullptr;
    std::shared_ptr<IoGate> gate;
  };

  // Reads the rows at positions[k], which the operation knows as picks[k]. `done` runs on the
  // executor, unless the gate has been closed.
  static void Start(const SpillShard& shard, const Wiring& wiring, absl::Span<const uint32_t> picks,
                    const std::vector<uint64_t>& positions,
                    const std::function<void(std::shared_ptr<SpillFetch>)>& done);

  std::vector<Part>& parts() { return parts_; }
  // The first part's error, if any.
  absl::Status status() const;

 private:
  static void ReadPart(const SpillShard& shard, SpillTier* spill, Part* part);

  std::vector<Part> parts_;
  std::atomic<int> open_parts_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_SPILL_FETCH_H_
