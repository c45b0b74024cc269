// The rows of staged pushes: pushes to a synchronous table that wait for their step's commit, by
// LSN. ShardCore lists the same pushes without rows (ShardCore::StagedOf).
//
// A commit sums the gradients of each row over the pushes that it names, in the given order, in
// fp32, starting from the gradient of the first push: the same numbers in the same order, however
// the table is sharded (docs/decisions.md, "Numbers").
//
// Thread-compatible, on the shard's strand; only the byte count of the server is shared.
#ifndef HOTBED_SERVER_SHARD_STAGED_ROWS_H_
#define HOTBED_SERVER_SHARD_STAGED_ROWS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/shard/counted_bytes.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

// One gradient per row; the ids are unique, in the order of their first appearance.
struct SummedRows {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;          // ids.size() x dim, and shows and clicks behind each row
  bool shows = false;                    // there are some
  std::vector<const uint8_t*> pointers;  // to the row of each id
};

class StagedRows {
 public:
  // `host_bytes` counts the bytes of all shards of a server; null: not counted.
  explicit StagedRows(std::shared_ptr<std::atomic<int64_t>> host_bytes)
      : bytes_(std::move(host_bytes)) {}

  // Bytes that a push occupies while it is staged.
  static uint64_t BytesOf(const RecordHeader& header);

  // Copies ids and rows; `gradients` has one pointer per row.
  void Add(const RecordHeader& header, const uint64_t* ids, const uint8_t* const* gradients);
  // The push at `lsn`, which must be staged.
  const RecordHeader& header(Lsn lsn) const { return pushes_.at(lsn).header; }
  // Any push of `step`; null: none is staged.
  const RecordHeader* AnyOf(uint64_t step) const;
  // Every one of `lsns` must be staged.
  SummedRows Sum(absl::Span<const Lsn> lsns, uint32_t dim) const;

  // `lsn` and everything above it is not in the log after all.
  void CutFrom(Lsn lsn);
  // Drops the pushes of `step` or earlier that were staged below `lsn`, the LSN of a commit.
  void DropThrough(uint64_t step, Lsn lsn);
  void Clear();
  void AddIds(absl::flat_hash_set<uint64_t>* ids) const;

  // For the shard's stored meta: a push as a record of the log (segment_format.h), and back.
  // DataLoss: the bytes are no such record. Rows that are not `wanted` are left out: the push was
  // staged before the shard was cut.
  std::string Serialize(Lsn lsn) const;
  absl::Status Restore(absl::string_view record, absl::FunctionRef<bool(uint64_t id)> wanted);

  uint64_t bytes() const { return bytes_.bytes(); }
  size_t size() const { return pushes_.size(); }
  bool contains(Lsn lsn) const { return pushes_.contains(lsn); }

 private:
  struct Push {
    RecordHeader header;
    std::vector<uint64_t> ids;
    std::unique_ptr<uint8_t[]> gradients;  // contiguous
  };

  std::map<Lsn, Push>::iterator Erase(std::map<Lsn, Push>::iterator it);

  std::map<Lsn, Push> pushes_;
  CountedBytes bytes_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_STAGED_ROWS_H_
