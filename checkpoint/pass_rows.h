// The rows of one pass of a checkpoint's file that lie in a range of positions, in their order; or
// its deleted rows. A file that is read by passes side by side has a reader for each, so that all
// of them read on from where they are, and each block is read once. Thread-compatible; blocks.
#ifndef HOTBED_CHECKPOINT_PASS_ROWS_H_
#define HOTBED_CHECKPOINT_PASS_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/rows_file.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {

class PassRows {
 public:
  PassRows(std::unique_ptr<RowsFileReader> file, uint32_t pass, RowsFileBlock kind, uint64_t first,
           uint64_t last)
      : file_(std::move(file)), pass_(pass), kind_(kind), first_(first), last_(last) {}

  bool deleted() const { return kind_ == RowsFileBlock::kDeleted; }
  uint32_t pass() const { return pass_; }

  // False: that was all.
  absl::StatusOr<bool> Next() {
    for (;;) {
      while (++row_ < ids_.size()) {
        position_ = file_->header().hashed ? Mix64(ids_[row_]) : ids_[row_];
        if (position_ >= first_ && position_ <= last_) return true;
      }
      const RowsFileEntry* const entry = NextBlock();
      if (entry == nullptr) return false;
      HOTBED_RETURN_IF_ERROR(file_->ReadRows(*entry, &ids_, &payloads_));
      bytes_read_ += entry->bytes;
      row_ = ~size_t{0};
    }
  }
  uint64_t position() const { return position_; }
  uint64_t id() const { return ids_[row_]; }
  absl::Span<const uint8_t> payload() const {
    const uint64_t bytes = file_->header().payload_bytes;
    return absl::MakeConstSpan(payloads_).subspan(row_ * bytes, bytes);
  }
  // Since the last call.
  uint64_t TakeBytesRead() { return std::exchange(bytes_read_, 0); }

 private:
  const RowsFileEntry* NextBlock() {
    while (block_ < file_->index().size()) {
      const RowsFileEntry& entry = file_->index()[block_++];
      if (entry.kind == kind_ && entry.pass == pass_ && entry.first_position <= last_ &&
          entry.last_position >= first_) {
        return &entry;
      }
    }
    return nullptr;
  }

  const std::unique_ptr<RowsFileReader> file_;
  const uint32_t pass_;
  const RowsFileBlock kind_;
  const uint64_t first_;  // positions, both inclusive
  const uint64_t last_;
  size_t block_ = 0;
  std::vector<uint64_t> ids_;
  std::vector<uint8_t> payloads_;
  size_t row_ = ~size_t{0};
  uint64_t position_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_PASS_ROWS_H_
