// Rows of one shard as callers hand them to the tiers and get them back. Plain records; nothing
// here owns what it points to, unless it says so.
#ifndef HOTBED_SERVER_TIERS_API_ROWS_H_
#define HOTBED_SERVER_TIERS_API_ROWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/kernels/row_batches.h"

namespace hotbed {

constexpr uint32_t kSpillHeaderBytes = 9;
constexpr uint32_t kSpillTrailerBytes = 4;

// What a read of spilled records says of each row (SpillTier::Fetch).
constexpr uint8_t kRowNotThere = 0;
constexpr uint8_t kRowThere = 1;
constexpr uint8_t kRowDeleted = 2;  // the record is the mark of its deletion

// A shard as the spill tier sees it.
struct SpillShard {
  SpillShard() = default;
  SpillShard(const TableSpec& table, const ShardRange& range, ShardId shard);

  ShardId shard;
  bool hashed = false;
  uint16_t slice = 0;
  uint64_t first_position = 0;
  uint64_t last_position = 0;
  WeightType weight_type = WeightType::kFp32;
  uint32_t dim = 0;
  uint32_t payload_bytes = 0;  // weights and state of a row

  uint32_t record_bytes() const { return kSpillHeaderBytes + payload_bytes + kSpillTrailerBytes; }
};

// A pooled pull that needs the spill tier holds at most this many bytes of rows (or one row) at a
// time, until it has added them to their bags.
constexpr uint64_t kPoolStageBytes = 256ull << 10;

// Ids are the caller's (not positions), unique, and lie in the range.
struct RowUpdates : GradientRows {
  const uint64_t* ids = nullptr;
  Lsn lsn = 0;           // of the log record that holds these updates; grows from call to call
  bool deletes = false;  // the rows are deleted; there are no gradients. Hashed tables only
};

// Rows that memory holds, read for a snapshot transfer to another server.
struct LiveRows {
  // One record per position, laid out as in the spill tier; version byte and checksum are unset.
  std::vector<uint8_t> records;
  // One byte per position: memory holds the row, or knows of its deletion (kRowDeleted).
  std::vector<uint8_t> found;
  bool all = false;  // a row that memory does not hold exists nowhere
};

// One pass of a snapshot transfer that reads memory (TieredStore::BeginPass).
struct LivePass {
  Lsn above = 0;  // LSN of the previous pass; 0: this is the first
  std::vector<uint64_t> positions;
  // Runs TieredStore::ReadPass on the shard's executor, for some of `positions`, ascending. Must
  // not be called on that executor.
  std::function<absl::Status(absl::Span<const uint64_t>, LiveRows*)> read;
  // `read` answers from rows that were read before, and the rows of the spill tier are to be those
  // of the call of ReadLive, too: the pass is of one moment.
  bool at_once = false;
};

// The rows of a shard as the spill tier holds them at one moment, read in blocks by a thread that
// may block. A block is a run of spilled records, each after its position, under a checksum of its
// own (server/tiers/spill/row_block.h); another server's spill tier takes blocks unchanged.
class ShardRowReader {
 public:
  virtual ~ShardRowReader() = default;
  // About `bytes_max` bytes of rows, or one row, or a block of none when many rows that are not
  // wanted had to be read; empty at the end. DataLoss names shard and id.
  virtual absl::StatusOr<std::string> Next(uint64_t bytes_max) = 0;
  virtual uint64_t bytes_total() const = 0;  // an estimate
  // The blocks from now on are for VisitRows in this process alone, and have no checksums.
  virtual void StayHere() {}
};

// Writes the blocks of a shard's ShardRowReader into the spill tier: those of one pass in order,
// then possibly those of a further pass, whose rows replace earlier ones. Nothing may be read back
// before Finish; DeleteShard removes the rest of an unfinished write. Thread-compatible; calls
// block.
class ShardRowWriter {
 public:
  virtual ~ShardRowWriter() = default;
  // DataLoss: damaged; InvalidArgument: rows of another shard or size, or not in order of position.
  // After these two, nothing of the block has been written; any other error is final.
  virtual absl::Status Write(absl::string_view block) = 0;
  // The same for rows as values: weights and state of each, back to back, all of one LSN.
  virtual absl::Status WriteValues(absl::Span<const uint64_t> positions, const uint8_t* payloads,
                                   Lsn lsn) = 0;
  // The same for deleted rows: none of them is there, whatever was written before.
  virtual absl::Status WriteDeleted(absl::Span<const uint64_t> /*positions*/, Lsn /*lsn*/) {
    return absl::UnimplementedError("these tiers write no deletions");
  }
  // Writes the shard's meta and makes everything durable.
  virtual absl::Status Finish(absl::string_view meta) = 0;
};

// The rows of a ShardRowReader's block as values: visit(position, weights and state), where the
// second is null for a deleted row. DataLoss: the block is damaged.
absl::Status VisitRows(const SpillShard& shard, absl::string_view block,
                       absl::FunctionRef<void(uint64_t position, const uint8_t* payload)> visit);

// The rows of a ShardRowReader's block as they lie there. DataLoss: the block is damaged.
struct BlockRows {
  const uint8_t* first = nullptr;  // the weights of the first row
  uint64_t stride = 0;
  uint32_t count = 0;

  uint64_t position(uint32_t row) const;
  bool deleted(uint32_t row) const;  // then it has no values
};
absl::StatusOr<BlockRows> RowsIn(const SpillShard& shard, absl::string_view block);

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_ROWS_H_
