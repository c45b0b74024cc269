// The loops over elements of composed rows. Products are rounded before they are added, and sums
// are taken in order, so that every build gives the same bits.
#ifndef HOTBED_CLIENT_COMPOSED_JOIN_LOOPS_H_
#define HOTBED_CLIENT_COMPOSED_JOIN_LOOPS_H_

#include <cstdint>

namespace hotbed {

void MultiplyInto(const float* a, const float* b, uint32_t n, float* out);         // out = a * b
void AddInto(const float* a, const float* b, uint32_t n, float* out);              // out = a + b
void AddScaled(const float* a, float c, uint32_t n, float* sum);                   // sum += c * a
void AddProduct(const float* a, const float* b, float c, uint32_t n, float* sum);  // += c * (a * b)
// sums[i][j] += g[i] * p[j], rows x columns.
void AddOuter(const float* g, uint32_t rows, const float* p, uint32_t columns, float* sums);
void Transpose(const float* from, uint32_t rows, uint32_t columns, float* to);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_COMPOSED_JOIN_LOOPS_H_
