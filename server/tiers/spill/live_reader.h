// Reads the rows of an open shard for another server without writing them back first: the rows in
// memory come from there, the rest from the spill tier. Implements TierHost::ReadLive.
//
// Reads window after window of positions: first the rows that memory holds, in one task of the
// shard's executor, then the spill tier. So a row that leaves memory meanwhile has been read, or is
// in the spill tier by then. A row that enters memory meanwhile is read with its older value and
// the LSN of that value. For a pass of one moment (LivePass::at_once) the spill tier is read as it
// was when the reader was made. A further pass reads those rows of the spill tier alone that its
// journal names, and those of the pass. Thread-compatible; prevents SpillTier::Renew while it
// lives.
#ifndef HOTBED_SERVER_TIERS_SPILL_LIVE_READER_H_
#define HOTBED_SERVER_TIERS_SPILL_LIVE_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kv/kv_store.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

class LiveReader : public ShardRowReader {
 public:
  LiveReader(const SpillShard& shard, LivePass pass, std::shared_ptr<KvStore> store);
  absl::StatusOr<std::string> Next(uint64_t bytes_max) override;
  uint64_t bytes_total() const override { return bytes_total_; }
  void StayHere() override { sealed_ = false; }

 private:
  // The rows that memory held of the window's positions, and how many positions have been handled.
  struct Window {
    absl::Span<const uint64_t> positions;
    LiveRows rows;
    size_t done = 0;
  };

  absl::Status ReadWindow(uint64_t bytes_max, RowBlockWriter* block, bool* full);
  bool AddFromMemory(Window* window, uint64_t limit, uint64_t bytes_max, RowBlockWriter* block);
  // Up to position `last`.
  absl::Status AddFromSpill(Window* window, uint64_t last, uint64_t bytes_max,
                            RowBlockWriter* block, bool* full);
  // Visits stored rows from cursor_ to `last`: all, or those that may have changed, which the
  // journal and the pass name.
  absl::Status VisitSpill(
      const Window& window, uint64_t last,
      absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit);
  // Rows for which the block has room, at least one if it is empty.
  uint64_t RoomOf(const RowBlockWriter& block, uint64_t bytes_max) const;

  const SpillShard shard_;
  LivePass pass_;
  const std::shared_ptr<KvStore> store_;
  const std::unique_ptr<KvSnapshot> snapshot_;  // null: the store as it is
  KvReads* const reads_;                        // either
  bool asked_journal_ = false;
  std::optional<std::vector<uint64_t>> journal_;  // nothing: all stored rows are read
  const uint64_t bytes_total_;
  Window window_;        // reused: allocating would delay a task of the shard
  size_t window_rows_;   // at most; shrinks where most rows are in the spill tier
  size_t next_ = 0;      // index in the pass's positions
  uint64_t cursor_ = 0;  // positions below are done
  bool at_end_ = false;
  bool sealed_ = true;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_LIVE_READER_H_
