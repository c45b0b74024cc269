// The rows of pushes to a synchronous table that wait for their step's commit, by LSN: what the
// shell keeps beside the core's list of them (ShardCore::StagedOf).
//
// A commit sums the gradients of each row over the pushes that it names, in the order in which they
// are given, in fp32, beginning with the first one's own: the same numbers in the same order on any
// set of shards (DECISIONS N3). Thread-compatible; of the shard's strand, but for the byte counts.
#ifndef HOTBED_SERVER_SHARD_STAGED_ROWS_H_
#define HOTBED_SERVER_SHARD_STAGED_ROWS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

// One gradient a row, of unique ids in the order of their first appearance.
struct SummedRows {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;          // ids.size() x dim
  std::vector<const uint8_t*> pointers;  // to the row of each id
};

class StagedRows {
 public:
  // `host_bytes`: what all shards of a server hold, kept up to date; null: not counted.
  explicit StagedRows(std::shared_ptr<std::atomic<int64_t>> host_bytes)
      : host_bytes_(std::move(host_bytes)) {}
  ~StagedRows() { Clear(); }
  StagedRows(const StagedRows&) = delete;
  StagedRows& operator=(const StagedRows&) = delete;

  // Bytes that a push will hold.
  static uint64_t BytesOf(const RecordHeader& header);

  // Copies ids and rows; `gradients` has one pointer a row.
  void Add(const RecordHeader& header, const uint64_t* ids, const uint8_t* const* gradients);
  // The push at `lsn`, which is here.
  const RecordHeader& header(Lsn lsn) const { return pushes_.at(lsn).header; }
  // Any of the pushes of `step`; null: none is staged.
  const RecordHeader* AnyOf(uint64_t step) const;
  // Each of `lsns` is here.
  SummedRows Sum(absl::Span<const Lsn> lsns, uint32_t dim) const;

  // `lsn` and what is behind it is not in the log after all.
  void CutFrom(Lsn lsn);
  // What was staged before `lsn`, a commit, for `step` or earlier ones.
  void DropThrough(uint64_t step, Lsn lsn);
  void Clear();

  // For the shard's stored meta: a push as a record of the log (segment_format.h), and back.
  // DataLoss when the bytes are not such a record.
  std::string Serialize(Lsn lsn) const;
  absl::Status Restore(absl::string_view record);

  uint64_t bytes() const { return bytes_; }
  size_t size() const { return pushes_.size(); }
  bool contains(Lsn lsn) const { return pushes_.contains(lsn); }

 private:
  struct Push {
    RecordHeader header;
    std::vector<uint64_t> ids;
    std::unique_ptr<uint8_t[]> gradients;  // contiguous
  };

  void Count(int64_t bytes);
  std::map<Lsn, Push>::iterator Erase(std::map<Lsn, Push>::iterator it);

  const std::shared_ptr<std::atomic<int64_t>> host_bytes_;
  std::map<Lsn, Push> pushes_;
  uint64_t bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_STAGED_ROWS_H_
