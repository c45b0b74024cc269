// Vectors that rows are compared with (row_math/nearness.h), each with zeros up to a whole number
// of cache lines. A load that crosses a line takes twice as long: with vectors at any address, rows
// in the cache took up to 1.7 times as long.
#ifndef HOTBED_ROW_MATH_LINE_VECTORS_H_
#define HOTBED_ROW_MATH_LINE_VECTORS_H_

#include <cstddef>
#include <vector>

namespace hotbed {

template <typename T>
class LineVectors {
 public:
  LineVectors(size_t count, size_t elements)
      : lines_per_vector_((elements + kPerLine - 1) / kPerLine),
        lines_(count * lines_per_vector_) {}
  T* operator[](size_t vector) { return lines_[vector * lines_per_vector_].elements; }
  const T* operator[](size_t vector) const { return lines_[vector * lines_per_vector_].elements; }

 private:
  static constexpr size_t kPerLine = 64 / sizeof(T);
  struct alignas(64) Line {
    T elements[kPerLine] = {};
  };
  size_t lines_per_vector_;
  std::vector<Line> lines_;
};

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_LINE_VECTORS_H_
