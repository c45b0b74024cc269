#include "client/composed/join_loops.h"

namespace hotbed {

void MultiplyInto(const float* a, const float* b, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void AddInto(const float* a, const float* b, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void AddScaled(const float* a, float c, uint32_t n, float* sum) {
  for (uint32_t i = 0; i < n; ++i) sum[i] += c * a[i];
}

void AddProduct(const float* a, const float* b, float c, uint32_t n, float* sum) {
  for (uint32_t i = 0; i < n; ++i) sum[i] += c * (a[i] * b[i]);
}

void AddOuter(const float* g, uint32_t rows, const float* p, uint32_t columns, float* sums) {
  for (uint32_t i = 0; i < rows; ++i) {
    AddScaled(p, g[i], columns, sums + uint64_t{i} * columns);
  }
}

void Transpose(const float* from, uint32_t rows, uint32_t columns, float* to) {
  for (uint32_t i = 0; i < rows; ++i) {
    for (uint32_t j = 0; j < columns; ++j) {
      to[uint64_t{j} * rows + i] = from[uint64_t{i} * columns + j];
    }
  }
}

}  // namespace hotbed
