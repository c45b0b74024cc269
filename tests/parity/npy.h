// Arrays in numpy's file format (.npy, version 1.0; 2.0 and 3.0 are read too), little-endian, in C
// order: the way in and out of hotbed-parity.
//
// Element types: f4, f8, i4, i8, u4, u8. Format: numpy.lib.format. Pure functions and plain values.
#ifndef HOTBED_TESTS_PARITY_NPY_H_
#define HOTBED_TESTS_PARITY_NPY_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hotbed::parity {

enum class NpyType : uint8_t { kF4, kF8, kI4, kI8, kU4, kU8 };

absl::string_view NpyTypeName(NpyType type);  // "f4"
size_t NpyTypeBytes(NpyType type);

struct NpyArray {
  NpyType type = NpyType::kF4;
  std::vector<uint64_t> shape;  // none: a scalar
  std::string data;             // size() elements, little-endian, the last dimension fastest

  uint64_t size() const;  // product of the shape
};

// InvalidArgument says what of the bytes is wrong and what is read: another element type, big
// endian, Fortran order, fewer or more bytes than the shape says.
absl::StatusOr<NpyArray> ParseNpy(absl::string_view bytes);

// Version 1.0, the same bytes as numpy.save writes. Precondition: data has size() elements.
std::string FormatNpy(const NpyArray& array);

template <typename T>
constexpr NpyType NpyTypeOf();
template <>
constexpr NpyType NpyTypeOf<float>() {
  return NpyType::kF4;
}
template <>
constexpr NpyType NpyTypeOf<double>() {
  return NpyType::kF8;
}
template <>
constexpr NpyType NpyTypeOf<int32_t>() {
  return NpyType::kI4;
}
template <>
constexpr NpyType NpyTypeOf<int64_t>() {
  return NpyType::kI8;
}
template <>
constexpr NpyType NpyTypeOf<uint32_t>() {
  return NpyType::kU4;
}
template <>
constexpr NpyType NpyTypeOf<uint64_t>() {
  return NpyType::kU8;
}

template <typename T>
NpyArray MakeNpy(std::vector<uint64_t> shape, absl::Span<const T> values) {
  NpyArray array;
  array.type = NpyTypeOf<T>();
  array.shape = std::move(shape);
  array.data.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return array;
}

// The elements. Precondition: the array is of type T.
template <typename T>
std::vector<T> NpyValues(const NpyArray& array) {
  std::vector<T> values(array.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace hotbed::parity

#endif  // HOTBED_TESTS_PARITY_NPY_H_
