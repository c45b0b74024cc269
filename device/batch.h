// A message to the rows of one device: consecutive ids of many tables, cut into segments of one
// table each. So a message is one launch per step, however many tables it names.
#ifndef HOTBED_DEVICE_BATCH_H_
#define HOTBED_DEVICE_BATCH_H_

#include <cstdint>

#include "device/table.h"
#include "row_math/isa.h"
#include "row_math/types.h"

namespace hotbed {
namespace device {

constexpr uint64_t kNowhere = ~0ull;

// Ids [first, first of the next segment) of a batch, all of one table, and their rows: row k of the
// segment at rows_at + k * RowWireBytes(type, dim) of the batch's row buffer. rows_at is a multiple
// of 16.
struct Segment {
  uint32_t table = 0;
  uint32_t first = 0;
  uint64_t rows_at = 0;
  RowType type = RowType::kFp32;
  // Reads: a row that is not on the device exists nowhere; the answer is its first value.
  bool absent_is_initial = false;
  // Updates: the rows of the buffer are new weights, not gradients.
  bool assign = false;
  UpdateScalars scalars;  // updates
};

// segments[0].first is 0, and `first` never decreases; there are `ids` ids.
struct Segments {
  const Segment* at = nullptr;
  uint32_t count = 0;
  uint32_t ids = 0;
};

// The segment of id k.
HOTBED_ROW_FN uint32_t SegmentOf(const Segments& segments, uint32_t k) {
  uint32_t low = 0;
  for (uint32_t high = segments.count; high - low > 1;) {
    const uint32_t middle = low + (high - low) / 2;
    segments.at[middle].first <= k ? low = middle : high = middle;
  }
  return low;
}

// The offset of the wire row of id k, which is in `segment`.
HOTBED_ROW_FN uint64_t RowOffset(const Segment& segment, uint32_t dim, uint32_t k) {
  return segment.rows_at + uint64_t{RowWireBytes(segment.type, dim)} * (k - segment.first);
}

// The part of a work that one team processes at a time.
struct Unit {
  uint32_t number;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_BATCH_H_
