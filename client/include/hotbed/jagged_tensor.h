// JaggedTensor: the values of one feature, any number for each sample, and its dense forms.
//
// `width` is the number of elements of a value: 1 for ids and weights, the dim for rows of
// embeddings. Thread-compatible plain values. InvalidArgument names sample, size and what is
// needed.
#ifndef HOTBED_JAGGED_TENSOR_H_
#define HOTBED_JAGGED_TENSOR_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace hotbed {

template <typename T>
struct JaggedTensor {
  std::vector<T> values;          // sum of lengths x width, sample after sample
  std::vector<uint32_t> lengths;  // one per sample, in values
  uint32_t width = 1;

  // The prefix sums of `lengths`, beginning with 0.
  std::vector<uint64_t> Offsets() const {
    std::vector<uint64_t> offsets(lengths.size() + 1);
    for (size_t i = 0; i < lengths.size(); ++i) offsets[i + 1] = offsets[i] + lengths[i];
    return offsets;
  }
  absl::Status Validate() const {
    const uint64_t needed = Offsets().back() * width;
    if (width > 0 && values.size() == needed) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        values.size(), " elements for lengths that need ", needed, " (values of ", width, ")"));
  }

  // One vector per sample, of lengths x width elements.
  static absl::StatusOr<JaggedTensor> FromDense(const std::vector<std::vector<T>>& samples,
                                                uint32_t width = 1) {
    JaggedTensor out;
    out.width = width;
    for (size_t s = 0; s < samples.size(); ++s) {
      if (width == 0 || samples[s].size() % width != 0) {
        return absl::InvalidArgumentError(absl::StrCat("sample ", s, " has ", samples[s].size(),
                                                       " elements; give a multiple of ", width));
      }
      out.lengths.push_back(static_cast<uint32_t>(samples[s].size() / width));
      out.values.insert(out.values.end(), samples[s].begin(), samples[s].end());
    }
    return out;
  }
  absl::StatusOr<std::vector<std::vector<T>>> ToDense() const {
    if (absl::Status valid = Validate(); !valid.ok()) return valid;
    std::vector<std::vector<T>> out;
    auto at = values.begin();
    for (const uint32_t length : lengths) {
      const auto end = at + static_cast<ptrdiff_t>(uint64_t{length} * width);
      out.emplace_back(at, end);
      at = end;
    }
    return out;
  }

  // `padded` has the shape [samples, steps, width], or with batch_dim 1 [steps, samples, width].
  // The first lengths[s] steps of sample s are taken.
  static absl::StatusOr<JaggedTensor> FromPadded(absl::Span<const T> padded, uint32_t steps,
                                                 std::vector<uint32_t> lengths, uint32_t width = 1,
                                                 int batch_dim = 0) {
    JaggedTensor out;
    out.lengths = std::move(lengths);
    out.width = width;
    const Padded shape{out.lengths.size(), steps, width, batch_dim};
    if (absl::Status valid = shape.Check(padded.size()); !valid.ok()) return valid;
    for (size_t s = 0; s < out.lengths.size(); ++s) {
      if (out.lengths[s] > steps) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the length of sample ", s, " is ", out.lengths[s], "; there are ", steps, " steps"));
      }
      for (uint32_t t = 0; t < out.lengths[s]; ++t) {
        const auto from = padded.begin() + static_cast<ptrdiff_t>(shape.At(s, t));
        out.values.insert(out.values.end(), from, from + width);
      }
    }
    return out;
  }
  // The shape that FromPadded takes. Shorter samples end with `padding`, longer ones are cut.
  absl::StatusOr<std::vector<T>> ToPadded(uint32_t steps, T padding, int batch_dim = 0) const {
    if (absl::Status valid = Validate(); !valid.ok()) return valid;
    const Padded shape{lengths.size(), steps, width, batch_dim};
    std::vector<T> out(shape.size(), padding);
    if (absl::Status valid = shape.Check(out.size()); !valid.ok()) return valid;
    const std::vector<uint64_t> offsets = Offsets();
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (uint32_t t = 0; t < std::min(lengths[s], steps); ++t) {
        std::copy_n(values.begin() + static_cast<ptrdiff_t>((offsets[s] + t) * width), width,
                    out.begin() + static_cast<ptrdiff_t>(shape.At(s, t)));
      }
    }
    return out;
  }

 private:
  struct Padded {
    size_t samples;
    uint32_t steps;
    uint32_t width;
    int batch_dim;

    size_t size() const { return samples * steps * width; }
    size_t At(size_t sample, size_t step) const {
      return (batch_dim == 0 ? sample * steps + step : step * samples + sample) * width;
    }
    absl::Status Check(size_t elements) const {
      if (batch_dim != 0 && batch_dim != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("batch_dim is ", batch_dim, "; allowed: 0, 1"));
      }
      if (width > 0 && elements == size()) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(elements, " elements for ", samples,
                                                     " samples x ", steps, " steps x ", width));
    }
  };
};

}  // namespace hotbed

#endif  // HOTBED_JAGGED_TENSOR_H_
