// The distinct rows that an announced batch reads of one table, and which of them own pushes have
// changed. Own pushes are numbered from 1. Thread-compatible, no network.
#ifndef HOTBED_CLIENT_AHEAD_ANNOUNCED_ROWS_H_
#define HOTBED_CLIENT_AHEAD_ANNOUNCED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "client/batch/dedupe.h"
#include "client/batch/resolve_ids.h"
#include "hotbed/client.h"

namespace hotbed {

class AnnouncedRows {
 public:
  explicit AnnouncedRows(const Table* table) : table_(table) {}

  // Adds the inputs of one feature, resolved. Returns the number of its first input.
  size_t AddFeature(const ResolvedIds& resolved);
  // Makes room for the rows, once all features were added.
  void MakeRows();

  const Table* table() const { return table_; }
  const std::vector<uint64_t>& ids() const { return ids_; }
  uint64_t bytes() const { return ids_.size() * uint64_t{table_->dim()} * sizeof(float); }
  float* rows() { return rows_.data(); }

  // Own push `number` changes the rows of `ids` (resolved ids without those that are skipped).
  void NoteChanged(absl::Span<const uint64_t> ids, uint64_t number);
  // A pull that begins now sees the pushes up to `number`. Returns the rows that it must bring
  // because one of these pushes changed them, and takes them for unchanged from now on. A row that
  // a later push changed, too, stays changed.
  std::vector<uint32_t> TakeChanged(uint64_t number);
  // Row `ids()[row]`, pulled again.
  void SetRow(uint32_t row, const float* from);

  // Writes the rows of inputs [first, first + count). Skipped inputs are zeros.
  void CopyTo(size_t first, size_t count, float* out) const;

 private:
  struct Changed {
    uint64_t first = 0;  // the earliest push that the row lacks; 0: none
    uint64_t last = 0;
  };
  const Table* const table_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> inputs_;  // of each input, the index in ids_ or kNoIndex
  absl::flat_hash_map<uint64_t, uint32_t> index_;
  std::vector<Changed> changed_;      // by row
  std::vector<uint32_t> to_refresh_;  // rows whose `first` is not 0, perhaps more
  std::vector<float> rows_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_AHEAD_ANNOUNCED_ROWS_H_
