// Writes the rows of an answer to the caller's buffers: every input where the id occurred gets the
// row, or the columns that the answering shard holds, converted where the types differ.
#ifndef HOTBED_CLIENT_BATCH_SCATTER_H_
#define HOTBED_CLIENT_BATCH_SCATTER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "row_math/types.h"

namespace hotbed {

// The destination of one feature's rows.
struct ScatterTarget {
  uint8_t* rows = nullptr;            // ids.size() rows of `row_type`
  uint8_t* exists = nullptr;          // or null
  RowType row_type = RowType::kFp32;  // kFp32 or the wire type; never kInt8 for part of a row
  uint8_t* missing = nullptr;         // or null
};

// Answers of at least this many bytes bypass the cache, which would not keep them until the caller
// reads them.
inline constexpr uint64_t kStreamingBytesMin = 8ull << 20;

struct ScatterJob {
  const TableGroup* group = nullptr;
  const PlanPart* part = nullptr;
  absl::Span<const ScatterTarget> targets;  // by feature
  RowType wire_type = RowType::kFp32;
  const uint8_t* const* rows = nullptr;  // one pointer per row of the part, in wire form, unaligned
  const uint8_t* flags = nullptr;        // one byte per row, or null
  bool streaming = false;
};

// Thread-safe for different parts. Streaming stores are fenced before it returns. A part that lacks
// some columns sets `exists` to 1 or leaves it alone: a row exists if any of its slices does.
void Scatter(const ScatterJob& job);

// Zeroes `exists` where the answers of several slices are joined. To be called before the first
// Scatter of a plan.
void ClearExists(const BatchPlan& plan, absl::Span<const ScatterTarget> targets);

// For a part that was not answered: zeroes its rows and their `exists`, and sets their `missing`
// to 1. Returns the number of rows that were not missing before.
uint64_t MarkMissing(const TableGroup& group, const PlanPart& part,
                     absl::Span<const ScatterTarget> targets);

// Zeroes the rows of skipped inputs, which no answer covers.
void ClearSkipped(absl::Span<const FeatureIds> features, absl::Span<const ScatterTarget> targets);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_SCATTER_H_
