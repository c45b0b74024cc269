// Rows of one shard as callers hand them to the tiers and get them back. Plain records; nothing
// here owns what it points to, unless it says so.
#ifndef HOTBED_SERVER_TIERS_API_ROWS_H_
#define HOTBED_SERVER_TIERS_API_ROWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "row_math/types.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

// A read of the columns [column_first, column_limit) of the shard's range. Ids are the caller's
// (not positions) and lie in the range.
struct RowReads {
  const uint64_t* ids = nullptr;
  uint32_t count = 0;
  RowType type = RowType::kFp32;
  // One row per id, or per bag, of RowWireBytes(type, dim) bytes each; unaligned.
  uint8_t* rows = nullptr;
  uint8_t* flags = nullptr;        // count bytes or null; bit 0 = the row exists
  AnswerMemory* answer = nullptr;  // the memory that holds `rows`; null: memory of any kind
  // Not pooled: read only ids[picks[k]], k < count; rows and flags keep the places they have in a
  // read of all ids. Null: read all.
  const uint32_t* picks = nullptr;
  // Pooled (row_math/pooling.h): the ids form `bags` consecutive bags, none of them empty.
  RowPooling pooling = RowPooling::kNone;
  const uint32_t* bag_lengths = nullptr;
  uint32_t bags = 0;
  const float* weights = nullptr;  // kSum: one per id, or null
  uint8_t* arg_max = nullptr;      // kMax: dim u32 per bag, unaligned, or null
};

// A pooled pull that needs the spill tier holds at most this many bytes of rows (or one row) at a
// time, until it has added them to their bags.
constexpr uint64_t kPoolStageBytes = 256ull << 10;

struct RowUpdates {
  const uint64_t* ids = nullptr;  // unique
  uint32_t count = 0;
  RowType gradient_type = RowType::kFp32;     // fp32, fp16 or bf16
  const uint8_t* const* gradients = nullptr;  // one pointer per row, to dim unaligned elements
  UpdateScalars scalars;
  bool assign = false;  // gradients are the rows' new weights; optimizer state starts over
  Lsn lsn = 0;          // of the log record that holds these updates; grows from call to call
};

// Rows that memory holds, read for a snapshot transfer to another server.
struct LiveRows {
  // One record per position, laid out as in the spill tier; version byte and checksum are unset.
  std::vector<uint8_t> records;
  std::vector<uint8_t> found;  // one byte per position: memory holds the row
  bool all = false;            // a row that memory does not hold exists nowhere
};

// One pass of a snapshot transfer that reads memory (TieredStore::BeginPass).
struct LivePass {
  Lsn above = 0;  // LSN of the previous pass; 0: this is the first
  std::vector<uint64_t> positions;
  // Runs TieredStore::ReadPass on the shard's executor, for some of `positions`, ascending. Must
  // not be called on that executor.
  std::function<absl::Status(absl::Span<const uint64_t>, LiveRows*)> read;
};

// The rows of a shard as the spill tier holds them at one moment, read in blocks by a thread that
// may block. A block is a run of spilled records, each after its position, under a checksum of its
// own (server/tiers/spill/row_block.h); another server's spill tier takes blocks unchanged.
class ShardRowReader {
 public:
  virtual ~ShardRowReader() = default;
  // About `bytes_max` bytes of rows, at least one row; empty at the end. DataLoss names shard and
  // id.
  virtual absl::StatusOr<std::string> Next(uint64_t bytes_max) = 0;
  virtual uint64_t bytes_total() const = 0;  // an estimate
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
  // Writes the shard's meta and makes everything durable.
  virtual absl::Status Finish(absl::string_view meta) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_ROWS_H_
