// Rows of an answer into the callers' buffers: every place where the id occurred gets the row,
// converted where it must be.
#ifndef HOTBED_CLIENT_SCATTER_H_
#define HOTBED_CLIENT_SCATTER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "client/batch_plan.h"
#include "row_math/types.h"

namespace hotbed {

// Where one feature's rows go.
struct ScatterTarget {
  uint8_t* rows = nullptr;            // ids.size() rows of `row_type`
  uint8_t* exists = nullptr;          // or null
  RowType row_type = RowType::kFp32;  // kFp32 or the wire type
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

// Thread-safe for parts of different rows. Streaming stores are fenced before it returns.
void Scatter(const ScatterJob& job);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SCATTER_H_
