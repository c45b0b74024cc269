#include "checkpoint/array_rows.h"

#include <cstring>
#include <utility>

#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "row_math/initializer.h"
#include "row_math/touches.h"

namespace hotbed {
namespace {

constexpr uint64_t kBufferBytes = 1ull << 20;

void ConvertWeights(const uint8_t* from, WeightType from_type, uint32_t count, WeightType to_type,
                    uint8_t* to) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * BytesPerWeight(to_type));
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    StoreWeight(LoadWeight(from + i * BytesPerWeight(from_type), from_type), to_type,
                to + i * BytesPerWeight(to_type));
  }
}

// Rows that come without state come with values: they are no candidates.
void AdmitRows(const TableSpec& spec, std::vector<uint8_t>* state) {
  if (!spec.optimizer.touches) return;
  const uint32_t count = spec.life.admission.after;
  StoreTouches({count, 0, 0}, state->data() + state->size() - kTouchBytes);
}

}  // namespace

ArraySlice::ArraySlice(const TableSpec& spec, uint32_t first, uint32_t limit)
    : column_first(first),
      columns(limit - first),
      state_bytes(StateBytes(spec.optimizer, columns)) {
  for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
    const ColumnRange before = SliceColumns(spec.dim, spec.column_slices, slice);
    if (before.first < first) state_first += StateBytes(spec.optimizer, before.columns());
  }
}

// --- writing

ArrayRowWriter::ArrayRowWriter(const TableSpec* spec, const ArraySlice& slice,
                               const RowArrays& arrays, uint64_t first_row, uint64_t limit_row,
                               IdOf id_of, Guard guard)
    : spec_(*spec),
      slice_(slice),
      arrays_(arrays),
      id_of_(std::move(id_of)),
      guard_(std::move(guard)),
      weight_bytes_(slice.columns * BytesPerWeight(arrays.type)),
      limit_row_(limit_row),
      filled_to_(first_row),
      first_(slice.columns),
      first_state_(slice.state_bytes) {
  FirstState(spec_.optimizer, slice_.columns, first_state_.data());
  AdmitRows(spec_, &first_state_);
}

absl::Status ArrayRowWriter::BeginPass() {
  if (pass_ > 0) HOTBED_RETURN_IF_ERROR(Finish());
  ++pass_;
  return absl::OkStatus();
}

uint8_t* ArrayRowWriter::Next(uint64_t row) {
  if (buffered_ == 0) buffered_row_ = row;
  ++buffered_;
  weights_.resize(weights_.size() + weight_bytes_);
  return weights_.data() + weights_.size() - weight_bytes_;
}

void ArrayRowWriter::PutFirst(uint64_t row) {
  const uint64_t id = id_of_(row);
  uint8_t* const to = Next(row);
  if (arrays_.state != nullptr)
    state_.insert(state_.end(), first_state_.begin(), first_state_.end());
  if (spec_.has_padding_id && id == spec_.padding_id) return;  // zeros
  InitialRow(spec_.initializer, spec_.seed, id, slice_.column_first, slice_.columns, first_.data());
  for (uint32_t k = 0; k < slice_.columns; ++k) {
    uint8_t stored[sizeof(float)];  // as the table would hold it
    StoreWeight(first_[k], spec_.weight_type, stored);
    StoreWeight(LoadWeight(stored, spec_.weight_type), arrays_.type,
                to + k * BytesPerWeight(arrays_.type));
  }
}

absl::Status ArrayRowWriter::FillTo(uint64_t row) {
  for (; filled_to_ < row; ++filled_to_) {
    if (weights_.size() >= kBufferBytes) HOTBED_RETURN_IF_ERROR(Flush());
    PutFirst(filled_to_);
  }
  return absl::OkStatus();
}

absl::Status ArrayRowWriter::Put(uint64_t row, const uint8_t* payload) {
  if (pass_ == 1) {
    HOTBED_RETURN_IF_ERROR(FillTo(row));
    filled_to_ = row + 1;
  }
  if (buffered_ > 0 && (row != buffered_row_ + buffered_ || weights_.size() >= kBufferBytes)) {
    HOTBED_RETURN_IF_ERROR(Flush());
  }
  if (spec_.has_padding_id && id_of_(row) == spec_.padding_id) {
    PutFirst(row);
    return absl::OkStatus();
  }
  ConvertWeights(payload, spec_.weight_type, slice_.columns, arrays_.type, Next(row));
  if (arrays_.state != nullptr) {
    const uint8_t* const state = payload + slice_.columns * BytesPerWeight(spec_.weight_type);
    state_.insert(state_.end(), state, state + slice_.state_bytes);
  }
  return absl::OkStatus();
}

absl::Status ArrayRowWriter::Finish() {
  HOTBED_RETURN_IF_ERROR(FillTo(limit_row_));  // after the first pass: nothing
  return Flush();
}

absl::Status ArrayRowWriter::Flush() {
  if (buffered_ == 0) return absl::OkStatus();
  const auto write = [this] { return WriteBuffer(); };
  HOTBED_RETURN_IF_ERROR(guard_ == nullptr ? write()
                                           : guard_(weights_.size() + state_.size(), write));
  buffered_ = 0;
  weights_.clear();
  state_.clear();
  return absl::OkStatus();
}

absl::Status ArrayRowWriter::WriteBuffer() {
  // Rows of `bytes` each at `from`, into an array whose rows have `stride` bytes.
  const auto write = [this](ArrayFile* file, uint64_t at, uint64_t stride,
                            const std::vector<uint8_t>& from, uint32_t bytes) -> absl::Status {
    at += buffered_row_ * stride;
    if (bytes == stride) return file->Write(at, from.data(), from.size());
    for (uint64_t i = 0; i < buffered_; ++i) {
      HOTBED_RETURN_IF_ERROR(file->Write(at + i * stride, from.data() + i * bytes, bytes));
    }
    return absl::OkStatus();
  };
  const uint32_t element = BytesPerWeight(arrays_.type);
  HOTBED_RETURN_IF_ERROR(write(arrays_.weights,
                               arrays_.weights_at + uint64_t{slice_.column_first} * element,
                               uint64_t{spec_.dim} * element, weights_, weight_bytes_));
  if (arrays_.state == nullptr) return absl::OkStatus();
  return write(arrays_.state, arrays_.state_at + slice_.state_first, spec_.state_bytes_per_row(),
               state_, slice_.state_bytes);
}

// --- reading

ArrayRowReader::ArrayRowReader(const TableSpec* spec, const ArraySlice& slice,
                               const RowArrays& arrays)
    : spec_(*spec),
      slice_(slice),
      arrays_(arrays),
      weight_bytes_(slice.columns * BytesPerWeight(spec->weight_type)),
      first_state_(slice.state_bytes) {
  FirstState(spec_.optimizer, slice_.columns, first_state_.data());
  AdmitRows(spec_, &first_state_);
}

absl::Status ArrayRowReader::Read(uint64_t row, uint64_t count, std::vector<uint8_t>* payloads) {
  const uint32_t element = BytesPerWeight(arrays_.type);
  const uint64_t stride = uint64_t{spec_.dim} * element;
  const uint64_t state_stride = spec_.state_bytes_per_row();
  weights_.resize(count * stride);
  HOTBED_RETURN_IF_ERROR(
      arrays_.weights->Read(arrays_.weights_at + row * stride, weights_.size(), weights_.data()));
  if (arrays_.state != nullptr) {
    state_.resize(count * state_stride);
    HOTBED_RETURN_IF_ERROR(
        arrays_.state->Read(arrays_.state_at + row * state_stride, state_.size(), state_.data()));
  }
  const size_t before = payloads->size();
  payloads->resize(before + count * payload_bytes());
  uint8_t* to = payloads->data() + before;
  for (uint64_t i = 0; i < count; ++i, to += payload_bytes()) {
    ConvertWeights(weights_.data() + i * stride + uint64_t{slice_.column_first} * element,
                   arrays_.type, slice_.columns, spec_.weight_type, to);
    const uint8_t* const state = arrays_.state == nullptr
                                     ? first_state_.data()
                                     : state_.data() + i * state_stride + slice_.state_first;
    std::memcpy(to + weight_bytes_, state, slice_.state_bytes);
  }
  return absl::OkStatus();
}

}  // namespace hotbed
