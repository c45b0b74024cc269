// Rows on their way from a shard into files, and from files into a new shard. What the files are is
// not the shard host's concern (server/export/).
#ifndef HOTBED_SERVER_HOST_ROW_FILES_H_
#define HOTBED_SERVER_HOST_ROW_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"

namespace hotbed {

// Takes the rows of one shard. Used by one thread; calls may block. An error ends the copy.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // A pass begins: its rows replace those of earlier passes. `bytes` is an estimate.
  virtual absl::Status BeginPass(uint64_t bytes) = 0;
  // Rows in the order of their positions: weights and state of each, back to back.
  virtual absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) = 0;
  // Rows that were deleted since an earlier pass, or since the rows to which the copy adds.
  virtual absl::Status TakeDeleted(absl::Span<const uint64_t> /*ids*/) {
    return absl::FailedPreconditionError("rows were deleted while they were copied; try it again");
  }
};

// The shard as its copy has it, beside the rows.
struct CopiedShard {
  ShardRange range;  // of the shard that was copied: it may have been cut since it was asked for
  Epoch epoch = 0;
  Lsn lsn = 0;  // all rows are as of this LSN
  Epoch lsn_epoch = 0;
  Lsn above = 0;  // not 0: only rows that have changed since
  uint32_t passes = 0;
  std::string sessions;  // SessionTable::AppendTo
  uint64_t session_count = 0;
  Incarnation forgotten = 0;  // ShardMeta::forgotten
  uint64_t last_step = 0;     // of the pushes in the rows
  uint64_t committed_step = 0;
  uint64_t staged_pushes = 0;  // that the copy does not have
  std::string touch_filter;    // ShardMeta::touch_filter
};

// Has the rows with which new shards begin (TableSpec::restored_from). Thread-safe; calls block.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // The rows of one shard. Used by one thread.
  class Rows {
   public:
    virtual ~Rows() = default;
    // The next rows, in order of position, in the form of the new table. Rows of a later call may
    // replace those of an earlier one; without payloads they are deleted. False: that was all.
    virtual absl::StatusOr<bool> Next(std::vector<uint64_t>* positions,
                                      std::vector<uint8_t>* payloads) = 0;
    virtual uint64_t bytes_total() const = 0;           // of the payloads, at most
    virtual uint64_t ahead_bytes() const { return 0; }  // of memory for what is read ahead
    virtual std::string sessions() const = 0;           // SessionTable::AppendTo; empty: none
    virtual Incarnation forgotten() const = 0;
    virtual std::string touch_filter() const { return ""; }  // ShardMeta::touch_filter
  };
  virtual absl::StatusOr<std::unique_ptr<Rows>> Open(const TableSpec& table,
                                                     const ShardRange& range) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_ROW_FILES_H_
