// Plain value types shared by every layer that touches a row: storage types, optimizer and
// initializer parameters.
//
// This header, like all of row_math, depends on nothing but the C++17 language and <cstdint>: it is
// compiled by the host compiler and by nvcc. Sizes are in bytes, dims in elements.
#ifndef HOTBED_ROW_MATH_TYPES_H_
#define HOTBED_ROW_MATH_TYPES_H_

#include <cstdint>

#if defined(__CUDACC__)
#define HOTBED_HD __host__ __device__
#else
#define HOTBED_HD
#endif

namespace hotbed {

// How a row's weights are stored. Optimizer state is always fp32 here.
enum class WeightType : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2 };

// How rows and gradients travel. kInt8 is for rows only: dim bytes of u8, then fp32 scale, then
// fp32 bias.
enum class RowType : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };

enum class OptimizerKind : uint8_t { kSgd = 0, kAdagrad = 1, kRowwiseAdagrad = 2, kAdam = 3 };

// Hyperparameters of one table. Unused fields are ignored by the kinds that have no such term.
struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::kRowwiseAdagrad;
  float learning_rate = 0.01f;       // used where the push does not carry one
  float epsilon = 1e-8f;             // > 0
  float beta1 = 0.9f;                // [0, 1), Adam
  float beta2 = 0.999f;              // [0, 1), Adam
  float weight_decay = 0.0f;         // L2, added to the gradient; >= 0
  float initial_accumulator = 0.0f;  // Adagrad kinds; >= 0
};

// What one push resolves once, on the primary, and logs: applying never computes a power or reads a
// schedule (DECISIONS L6, N1).
struct UpdateScalars {
  float learning_rate = 0.0f;
  float bias_correction1 = 1.0f;  // 1 - beta1^t, Adam
  float bias_correction2 = 1.0f;  // 1 - beta2^t, Adam
};

enum class InitializerKind : uint8_t {
  kZero = 0,
  kConstant = 1,  // a
  kUniform = 2,   // [a, b)
  kNormal = 3,    // mean a, standard deviation b
  kTruncatedNormal =
      4,  // the same, redrawn (by inverse CDF on a narrower range) to within two deviations
};

struct InitializerParams {
  InitializerKind kind = InitializerKind::kZero;
  float a = 0.0f;
  float b = 0.0f;
};

enum class NanPolicy : uint8_t { kReject = 0, kSkip = 1, kAllow = 2 };

HOTBED_HD constexpr uint32_t BytesPerWeight(WeightType type) {
  return type == WeightType::kFp32 ? 4u : 2u;
}

// Bytes of one row of `dim` elements on the wire.
HOTBED_HD constexpr uint32_t RowWireBytes(RowType type, uint32_t dim) {
  return type == RowType::kFp32 ? 4u * dim : type == RowType::kInt8 ? dim + 8u : 2u * dim;
}

// fp32 elements of optimizer state beside a row of `dim` weights.
HOTBED_HD constexpr uint32_t StateElements(OptimizerKind kind, uint32_t dim) {
  return kind == OptimizerKind::kSgd              ? 0u
         : kind == OptimizerKind::kAdagrad        ? dim
         : kind == OptimizerKind::kRowwiseAdagrad ? 1u
                                                  : 2u * dim;  // Adam: m then v
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_TYPES_H_
