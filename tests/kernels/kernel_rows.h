// The memory of one small table for kernels to work on, and the wire formats written out plainly.
#ifndef HOTBED_TESTS_KERNELS_KERNEL_ROWS_H_
#define HOTBED_TESTS_KERNELS_KERNEL_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/tables/table_spec.h"
#include "row_math/half.h"
#include "server/kernels/row_batches.h"
#include "tests/kernels/row_twin.h"

namespace hotbed {

using Bytes = std::vector<uint8_t>;

inline void Append(Bytes* to, const void* from, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(from);
  to->insert(to->end(), first, first + bytes);
}

inline Bytes BytesOf(const std::vector<float>& values) {
  Bytes bytes;
  Append(&bytes, values.data(), values.size() * sizeof(float));
  return bytes;
}

// A row of any type but int8.
inline Bytes PlainRow(const std::vector<float>& values, RowType type) {
  if (type == RowType::kFp32) return BytesOf(values);
  Bytes bytes;
  for (float value : values) {
    const uint16_t half = type == RowType::kFp16 ? FloatToFp16(value) : FloatToBf16(value);
    Append(&bytes, &half, sizeof(half));
  }
  return bytes;
}

// By the text of row_math/quantize.h, for finite values.
inline Bytes Int8Row(const std::vector<float>& values) {
  const float low = *std::min_element(values.begin(), values.end());
  const float range = *std::max_element(values.begin(), values.end()) - low;
  Bytes bytes;
  for (float value : values) {
    bytes.push_back(static_cast<uint8_t>(std::lrint((value - low) * (255.0f / (range + 1e-8f)))));
  }
  const float scale = range / 255.0f;
  Append(&bytes, &scale, sizeof(scale));
  Append(&bytes, &low, sizeof(low));
  return bytes;
}

inline Bytes WireRow(const std::vector<float>& values, RowType type) {
  return type == RowType::kInt8 ? Int8Row(values) : PlainRow(values, type);
}

// As the spill tier keeps it: weights, then state.
inline Bytes StoredRow(const RowTwin::Row& row, const TableSpec& spec) {
  Bytes bytes = PlainRow(row.weights, static_cast<RowType>(spec.weight_type));
  const size_t state = bytes.size();
  const bool fp32 = spec.optimizer.state_type == StateType::kFp32;
  for (const auto& vector : row.vectors) {
    const Bytes elements = PlainRow(vector, fp32 ? RowType::kFp32 : RowType::kBf16);
    Append(&bytes, elements.data(), elements.size());
  }
  while ((bytes.size() - state) % 4 != 0) bytes.push_back(0);
  const StateLayout layout = LayoutOfState(spec.optimizer);
  if (layout.has_statistic) Append(&bytes, &row.statistic, 4);
  if (layout.has_count) Append(&bytes, &row.count, 4);
  if (layout.has_updates) Append(&bytes, &row.updates, 4);
  if (layout.has_last_step) Append(&bytes, &row.last_step, 4);
  return bytes;
}

struct KernelRows {
  static constexpr uint32_t kSlots = 48;
  static constexpr uint64_t kFirst = 1000;  // of a bounded range

  KernelRows(const TableSpec& spec, uint32_t column_first, bool direct)
      : optimizer(spec.optimizer) {
    table.seed = spec.seed;
    table.dim = spec.dim;
    table.column_first = column_first;
    table.hashed = spec.hashed;
    table.weight_type = spec.weight_type;
    table.optimizer = &optimizer;
    table.initializer = spec.initializer;
    table.weight_bytes = static_cast<uint32_t>(spec.weight_bytes_per_row());
    table.weight_stride = (table.weight_bytes + 3) / 4 * 4;
    table.state_bytes = static_cast<uint32_t>(spec.state_bytes_per_row());
    table.direct = direct;
    table.first_position = kFirst;
    table.slots = kSlots;
    weights.resize(size_t{table.weight_stride} * kSlots);
    state.resize(size_t{table.state_bytes} * kSlots + 1);
    bits.resize(kSlots);
    positions.resize(kSlots);
    buckets.resize(4);  // 60 entries: some rows do not fit their home bucket
    table.weights = weights.data();
    table.state = state.data();
    table.bits = bits.data();
    table.positions = direct ? nullptr : positions.data();
    table.buckets = direct ? nullptr : buckets.data();
    table.bucket_count = direct ? 0 : static_cast<uint32_t>(buckets.size());
  }
  KernelRows(const KernelRows&) = delete;

  Bytes RowAt(uint32_t slot) const {
    Bytes bytes;
    Append(&bytes, weights.data() + size_t{table.weight_stride} * slot, table.weight_bytes);
    Append(&bytes, state.data() + size_t{table.state_bytes} * slot, table.state_bytes);
    return bytes;
  }
  // Everything that a kernel may write.
  Bytes Memory() const {
    Bytes bytes = weights;
    Append(&bytes, state.data(), state.size());
    Append(&bytes, bits.data(), bits.size());
    Append(&bytes, positions.data(), positions.size() * sizeof(uint64_t));
    Append(&bytes, buckets.data(), buckets.size() * sizeof(IndexBucket));
    return bytes;
  }

  const OptimizerParams optimizer;
  RowTable table;
  Bytes weights, state, bits;
  std::vector<uint64_t> positions;
  std::vector<IndexBucket> buckets;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_KERNEL_ROWS_H_
