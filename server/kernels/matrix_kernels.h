// Products of matrices and the softmax over them, in fp32: what the output layer computes where its
// rows are (server/output/).
//
// Unlike the row kernels these may contract products and sums, and the order of a sum depends on
// the instruction set: no row's state is computed by them twice. Gradients that come out of here
// are logged as numbers. Functions are stateless; matrices do not overlap.
#ifndef HOTBED_SERVER_KERNELS_MATRIX_KERNELS_H_
#define HOTBED_SERVER_KERNELS_MATRIX_KERNELS_H_

#include <cstdint>

namespace hotbed {

// c = a b, or c += a b: a is m x k, b is k x n, c is m x n. Strides are in elements.
struct MatrixProduct {
  const float* a = nullptr;
  uint64_t a_row = 0;     // from one row to the next
  uint64_t a_column = 1;  // from one column to the next
  const float* b = nullptr;
  uint64_t b_row = 0;
  float* c = nullptr;
  uint64_t c_row = 0;
  uint32_t m = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  bool add = false;
  float* scratch = nullptr;  // kMatrixScratchFloats, aligned to 64 bytes
};
constexpr uint64_t kMatrixScratchFloats = 256 * (256 + 128);

// The logits of some rows of a table for all tokens: one row per row of the table, one column per
// token, without gaps.
struct LogitBlock {
  float* logits = nullptr;
  uint32_t rows = 0;
  uint32_t tokens = 0;
};

// One instruction set's functions.
struct MatrixKernelSet {
  const char* name;  // as that of CpuKernelSet
  void (*multiply)(const MatrixProduct&);
  // Raises maxima[t] to the largest logit of token t.
  void (*raise_maxima)(const LogitBlock&, float* maxima);
  // Adds to sums[t] the exponentials of (logit - maxima[t]), and to totals[t] the logits.
  void (*add_exponentials)(const LogitBlock&, const float* maxima, double* sums, double* totals);
  // Replaces each logit by its gradient: scales[t] exp(logit - maxima[t]) - floors[t].
  void (*to_gradients)(const LogitBlock&, const float* maxima, const float* scales,
                       const float* floors);
};

// The set of the instruction set in use (CpuKernels).
const MatrixKernelSet& MatrixKernels();
// That of this name, which is one of AvailableCpuKernelSets.
const MatrixKernelSet& MatrixKernelsOf(const char* name);

}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_MATRIX_KERNELS_H_
