// All rows of one copy on the server's own disk, in RocksDB (kv/): a serving server that comes back
// goes on from there, and rows that memory has no room for are read from there.
//
// One thread writes: changes gather in a batch, and Commit writes them together with how far the
// copy has followed its table. After a kill the newest commits may be missing, never one before
// another. Any thread reads.
#ifndef HOTBED_SERVING_ROWS_DISK_ROWS_H_
#define HOTBED_SERVING_ROWS_DISK_ROWS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kv/kv_store.h"
#include "serving/rows/rows_below.h"
#include "serving/rows/served_rows.h"

namespace hotbed {

class DiskRows final : public RowsBelow {
 public:
  // In `dir`, which is made. Rows have `row_bytes`. `kind` says whose rows they are: where the
  // directory has others, or damaged ones, they are deleted, and it begins without rows. All rows
  // are read. While that lasts, and in DeleteOlder, `stops` may end it: Cancelled.
  static absl::StatusOr<std::unique_ptr<DiskRows>> Open(const std::string& dir, uint32_t row_bytes,
                                                        const std::string& kind,
                                                        const std::function<bool()>& stops = {});
  ~DiskRows() override;

  // --- the writer
  // `known`: there is a row of this id, for sure.
  void Put(uint64_t id, const uint8_t* row, bool known = false);
  void Delete(uint64_t id);
  // Writes what has gathered, and `position`. After an error nothing of it is there.
  absl::Status Commit(const std::string& position);
  // As of the last Commit; empty: there was none.
  const std::string& position() const { return position_; }
  // After a disk was full, or has failed: tries whether it takes writes again.
  absl::Status TryResume() { return Note(kv_->TryResume()); }
  // Makes durable what was committed.
  absl::Status Flush();
  // Writes the rows of `ids`, which ascend, as `memory` has them when it comes to each, and deletes
  // those that it does not have: as one file, which is there whole and durable, with the position
  // that `position` gives after the last row, or not at all. That many rows are told (rows()) as
  // memory has then. Any thread may call it, while no other call of the writer is under way.
  // Aborted: `position` has given none.
  absl::Status WriteFile(absl::Span<const uint64_t> ids, const ServedRows& memory,
                         absl::FunctionRef<std::string()> position);
  // Rows that are put from now on are of the returned age, which is larger than any before.
  absl::StatusOr<uint32_t> BeginAge();
  // Deletes rows of an age before `least(id)`; returns how many.
  absl::StatusOr<uint64_t> DeleteOlder(absl::FunctionRef<uint32_t(uint64_t id)> least);

  // From now on readers must look here.
  void SetNeeded() { needed_.store(true); }
  // Ids that readers found here since it was asked last, some of them if there were many.
  std::vector<uint64_t> TakeRead() ABSL_LOCKS_EXCLUDED(read_mu_);
  // Read, without TakeRead being told.
  absl::Status Find(absl::Span<const uint64_t> ids, const Visit& visit) const;
  // The files go with this object.
  void DeleteAtEnd() { delete_at_end_ = true; }

  // --- any thread
  bool needed() const override { return needed_.load(); }
  absl::Status Read(absl::Span<const uint64_t> ids, const Visit& visit) const override
      ABSL_LOCKS_EXCLUDED(read_mu_);
  absl::Status Scan(
      const std::function<bool(uint64_t id, const uint8_t* row)>& visit) const override;
  bool damaged() const override { return damaged_.load(); }
  uint64_t rows() const override { return rows_.load(std::memory_order_relaxed); }
  uint64_t bytes() const override { return kv_->GetUsage().disk_bytes; }

 private:
  DiskRows(std::string dir, std::unique_ptr<KvStore> kv, uint32_t row_bytes,
           std::function<bool()> stops)
      : dir_(std::move(dir)),
        kv_(std::move(kv)),
        batch_(kv_->NewBatch()),
        row_bytes_(row_bytes),
        stops_(std::move(stops)) {}
  absl::Status Load(const std::string& kind, bool* other);
  // Keys of rows from `first` on until `visit` returns false. Cancelled: it is to stop.
  absl::Status ScanUnlessStopped(
      const std::string& first,
      absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit) const;
  absl::Status Note(absl::Status status) const {
    if (absl::IsDataLoss(status)) damaged_.store(true);
    return status;
  }

  const std::string dir_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<KvBatch> batch_;
  const uint32_t row_bytes_;
  const std::function<bool()> stops_;
  mutable std::atomic<bool> damaged_{false};
  bool delete_at_end_ = false;
  std::atomic<bool> needed_{false};
  mutable absl::Mutex read_mu_;
  mutable std::vector<uint64_t> read_ ABSL_GUARDED_BY(read_mu_);
  uint32_t age_ = 1;
  std::string position_;
  bool flushed_ = true;
  std::vector<uint64_t> changed_;  // ids of the batch, but those that are known
  std::vector<bool> put_;          // of them, which ones are put
  std::atomic<uint64_t> rows_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_DISK_ROWS_H_
