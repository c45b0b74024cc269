// Rows of an answer into the callers' buffers: every place where the id occurred gets the row, or
// the columns of it that the answering shard has, converted where they must be.
#ifndef HOTBED_CLIENT_BATCH_SCATTER_H_
#define HOTBED_CLIENT_BATCH_SCATTER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "row_math/types.h"

namespace hotbed {

// Where one feature's rows go.
struct ScatterTarget {
  uint8_t* rows = nullptr;            // ids.size() rows of `row_type`
  uint8_t* exists = nullptr;          // or null
  RowType row_type = RowType::kFp32;  // kFp32 or the wire type; of part of a row never kInt8
};

// Writes that go around the cache pay when the whole answer is larger than what the cache keeps
// until it is read.
inline constexpr uint64_t kStreamingBytesMin = 8ull << 20;

struct ScatterJob {
  const TableGroup* group = nullptr;
  const PlanPart* part = nullptr;
  absl::Span<const ScatterTarget> targets;  // by feature
  RowType wire_type = RowType::kFp32;
  const uint8_t* const* rows = nullptr;  // one pointer a row of the part, in wire form, unaligned
  const uint8_t* flags = nullptr;        // one byte a row, or null
  bool streaming = false;
};

// Thread-safe for different parts. Streaming stores are fenced before it returns. `exists` of a
// part that has not all columns is set to 1 or left alone: a row exists if any of its slices does.
void Scatter(const ScatterJob& job);

// Before the first part of a plan is scattered: zeros where the answers of several slices are
// joined.
void ClearExists(const BatchPlan& plan, absl::Span<const ScatterTarget> targets);

// Zeros in the places of inputs that are skipped: no answer comes for them.
void ClearSkipped(absl::Span<const FeatureIds> features, absl::Span<const ScatterTarget> targets);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_SCATTER_H_
