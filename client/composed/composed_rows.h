// The rows of a composed table's parts for the ids of one feature: finds which are needed, and
// makes rows of the composed table of them.
//
// A stream is a sequence of part rows over the ids. kQuotientRemainder has two, and every id has a
// row in both; the forms of blocks have one per block, and every id has a row in one of them.
#ifndef HOTBED_CLIENT_COMPOSED_COMPOSED_ROWS_H_
#define HOTBED_CLIENT_COMPOSED_COMPOSED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/dedupe.h"
#include "client/batch/resolve_ids.h"
#include "client/composed/composed_handle.h"
#include "client/net/buffer_pool.h"
#include "hotbed/client.h"

namespace hotbed {

// Thread-compatible.
class ComposedRows {
 public:
  explicit ComposedRows(const ComposedHandle* table);

  // Finds the rows of the parts that `ids` need, each once. OutOfRange: an id that bounds mode
  // `error` refuses. `ids` outlive it.
  absl::Status Bind(size_t feature, absl::Span<const uint64_t> ids);
  // Adds the pulls of these rows, and of the maps of the blocks that have some. `exists`: also
  // whether they were ever pushed.
  void AddPulls(bool exists, std::vector<PullFeature>* pulls);
  // To be called when the rows were pulled, before the calls below.
  void TakeRows();

  const ComposedHandle& table() const { return table_; }
  const Composition& composition() const { return table_.options().composition; }
  uint32_t dim() const { return dim_; }
  uint64_t zeroed() const { return resolved_.zeroed; }
  bool quotient_remainder() const { return composition().form == ComposeForm::kQuotientRemainder; }
  // Bags are pooled in each stream, and one row is made of the pooled ones.
  bool pools_first() const { return !quotient_remainder() || composition().pool_first; }
  uint32_t streams() const { return static_cast<uint32_t>(streams_.size()); }
  uint32_t stream_dim(uint32_t stream) const { return streams_[stream].rows.dim; }
  bool skips(uint64_t i) const { return resolved_.skip != nullptr && resolved_.skip[i] != 0; }
  bool is_padding(uint64_t i) const {
    return resolved_.skip != nullptr && resolved_.skip[i] == kIdPadding;
  }
  // The place of id i's row among the distinct rows of a stream; kNoIndex: it has none there.
  uint32_t IndexOf(uint32_t stream, uint64_t i) const {
    if (quotient_remainder()) return index_[stream][i];
    return block_[i] == stream ? index_[0][i] : kNoIndex;
  }
  const float* Row(uint32_t stream, uint32_t index) const {
    const PartRows& rows = streams_[stream].rows;
    return rows.rows + uint64_t{index} * rows.dim;
  }
  // Writes to `out` (dim elements) the row that one row of a stream makes by itself: of blocks,
  // mapped to all elements.
  void Mapped(uint32_t stream, const float* row, float* out) const;
  // The row of a quotient's and a remainder's row.
  void Join(const float* quotient, const float* remainder, float* out) const;

  // One row per id, zeros for skipped ones.
  void WriteRows(float* out) const;
  // One row per bag; `feature` has the ids that were bound.
  void WriteBags(const PullFeature& feature) const;
  // 1 where the rows of all streams of an id were ever pushed.
  void WriteExists(uint8_t* exists) const;

  // --- pushes. Gradients of the distinct rows of each stream and of the maps; zeroed by the first.
  void ClearGradients();
  float* GradientOf(uint32_t stream, uint32_t index) {
    PartRows& rows = streams_[stream].rows;
    return rows.gradients.data() + uint64_t{index} * rows.dim;
  }
  // Adds the gradient of a mapped row: to that of the map, and returns in `narrow` (stream_dim
  // elements) that of the row. `row`: the stream's.
  void Unmapped(uint32_t stream, const float* gradient, const float* row, float* narrow);
  void AddPushes(std::vector<PushFeature>* pushes) const;

 private:
  struct PartRows {
    const Table* table = nullptr;
    uint32_t dim = 0;
    std::vector<uint64_t> ids;
    BufferRef memory;
    float* rows = nullptr;  // in `memory`, one per id
    std::vector<uint8_t> exists;
    std::vector<float> gradients;
  };
  struct Stream {
    PartRows rows;
    PartRows map;          // without a table: the stream has none
    BufferRef transposed;  // the map: stream_dim x dim floats
    std::vector<const float*> transposed_rows;
    std::vector<const float*> map_rows;
  };
  void BindQuotientRemainder(absl::Span<const uint64_t> ids);
  void BindBlocks(absl::Span<const uint64_t> ids);
  void AddPull(bool exists, PartRows* part, std::vector<PullFeature>* pulls);
  float Divisor(const PullFeature& feature, uint64_t begin, uint64_t end) const;
  void WriteJoinedBag(const PullFeature& feature, uint64_t begin, uint64_t end, float* out,
                      uint32_t* arg_max) const;
  void WritePooledBag(const PullFeature& feature, uint64_t begin, uint64_t end, float* out) const;
  bool PoolStream(const PullFeature& feature, uint32_t stream, uint64_t begin, uint64_t end,
                  float* out) const;

  const ComposedHandle& table_;
  const uint32_t dim_;
  ResolvedIds resolved_;
  std::vector<Stream> streams_;
  std::vector<uint32_t> index_[2];  // by id; of blocks, the first alone
  std::vector<uint8_t> block_;      // of blocks, by id
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_COMPOSED_COMPOSED_ROWS_H_
