// Plain value types shared by every layer that touches a row: storage types, optimizer and
// initializer parameters.
//
// This header, like all of row_math, depends on nothing but the C++17 language and <cstdint>: it is
// compiled by the host compiler and by nvcc. Sizes are in bytes, dims in elements.
#ifndef HOTBED_ROW_MATH_TYPES_H_
#define HOTBED_ROW_MATH_TYPES_H_

#include <cstdint>

// Functions of plain values. Always inline: code compiled for one instruction set must not be
// called from another (row_math/isa.h).
#if defined(__CUDACC__)
#define HOTBED_HD __host__ __device__
#else
#define HOTBED_HD __attribute__((always_inline)) inline
#endif

namespace hotbed {

// How a row's weights are stored.
enum class WeightType : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2 };

// How the vectors of optimizer state are stored (one element per weight). Scalars of a row are
// always fp32.
enum class StateType : uint8_t { kFp32 = 0, kBf16 = 1 };

// How rows and gradients travel. kInt8 is for rows only: dim bytes of u8, then fp32 scale, then
// fp32 bias.
enum class RowType : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };

// How a bag of rows becomes one row on reads; formulas in row_math/pooling.h. The side that knows
// the whole bag makes a mean from the sum. Values are part of the wire format.
enum class RowPooling : uint8_t { kNone = 0, kSum = 1, kMax = 2 };

// Formulas in row_math/optimizer.h and docs/tables.md. Values are part of the wire format.
enum class OptimizerKind : uint8_t {
  kSgd = 0,
  kAdagrad = 1,
  kRowwiseAdagrad = 2,
  kAdam = 3,
  kMomentumSgd = 4,
  kAdamW = 5,
  kPartialRowwiseAdam = 6,  // the second moment is one number per row
  kLamb = 7,
  kPartialRowwiseLamb = 8,
  kLars = 9,
  kFtrl = 10,
  kRmsProp = 11,
  kNone = 12,            // rows never change: the client hands the summed gradient back
  kRowwiseRmsProp = 13,  // the average of squares is one number per row
  kLion = 14,
  kAdadelta = 15,
  kAmsGrad = 16,
  kRowwiseAdagradCounter = 17,  // row-wise Adagrad that knows how often a row was updated
};
constexpr OptimizerKind kLastOptimizerKind = OptimizerKind::kRowwiseAdagradCounter;

// Calls F(kind) for every kind with a step of its own: first those that work element by element,
// then those that need numbers of the whole row. (AdamW is Adam with another decay.)
#define HOTBED_ELEMENT_KINDS(F) \
  F(kSgd)                       \
  F(kAdagrad)                   \
  F(kAdam)                      \
  F(kMomentumSgd)               \
  F(kFtrl)                      \
  F(kRmsProp)                   \
  F(kNone)                      \
  F(kLion)                      \
  F(kAdadelta)                  \
  F(kAmsGrad)
#define HOTBED_ROW_KINDS(F) \
  F(kRowwiseAdagrad)        \
  F(kPartialRowwiseAdam)    \
  F(kLamb)                  \
  F(kPartialRowwiseLamb)    \
  F(kLars)                  \
  F(kRowwiseRmsProp)        \
  F(kRowwiseAdagradCounter)
#define HOTBED_STEP_KINDS(F) HOTBED_ELEMENT_KINDS(F) HOTBED_ROW_KINDS(F)

// Where weight decay enters: kL2 adds weight_decay * w to the gradient; kDecoupled shrinks the
// weights by learning_rate * weight_decay, separately from the step.
enum class DecayMode : uint8_t { kL2 = 0, kDecoupled = 1 };

// The way in which a row's count changes its step, for kRowwiseAdagradCounter; formulas are in
// row_math/optimizer.h. Values are part of the wire format.
enum class CounterMode : uint8_t {
  kDecay = 0,         // only the weight decay: more for rare rows
  kTailIncrease = 1,  // a higher rate for rare rows
  kTailDecrease = 2,  // a lower rate for rare rows
  kCounterSgd = 3,    // the count in place of the sum of squares
  kAdagradW = 4,      // the rate grows with the root of the count; decoupled lazy decay
  kCowClip = 5,       // the gradient's norm is limited by the count and the weights' norm
};

// Hyperparameters of kRowwiseAdagradCounter.
struct CounterParams {
  CounterMode mode = CounterMode::kDecay;
  float half_life = 0.0f;         // >= 0, steps after which an update counts half; 0: fully
  uint64_t from_step = 0;         // counts change steps above this one only; not CowClip
  float threshold = 0.0f;         // >= 0, tail and SGD modes: only rows with a higher count
  float most = 1.0f;              // > 0, tail modes: the count of a frequent row
  float power = 1.0f;             // > 0, tail modes: exponent; SGD mode: factor of the count
  float clip_coefficient = 0.0f;  // >= 0, CowClip: of the weights' norm
  float clip_least = 0.0f;        // >= 0, CowClip: the least limit per count
};

// The second half of a row follows its first half as a moving average, for any optimizer: after
// each step that `every` divides, average += rate * (weight - average). A row catches up when it is
// next updated, before its step.
struct AverageParams {
  float rate = 0.0f;       // [0, 1]; 0: the second half is a part of the row as any other
  uint64_t every = 10;     // >= 1, steps
  uint64_t from_step = 0;  // the first step after which the average moves
};

// Shows and clicks of rows (row_math/touches.h).
struct ShowParams {
  bool kept = false;           // beside the row's touches
  float decay = 1.0f;          // (0, 1]: what is left of them after a period; 1: all
  uint32_t period_s = 86'400;  // >= 1
};

// Hyperparameters of one table. Unused fields are ignored by the kinds that have no such term.
struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::kRowwiseAdagrad;
  float learning_rate = 0.01f;  // used where the push does not carry one
  float epsilon = 1e-8f;        // > 0
  float beta1 = 0.9f;           // [0, 1), Adam and LAMB kinds, Lion
  float beta2 =
      0.999f;  // [0, 1), Adam and LAMB kinds, Lion; smoothing of RMSProp's, Adadelta's rho
  float weight_decay = 0.0f;         // >= 0
  float initial_accumulator = 0.0f;  // Adagrad kinds, FTRL; >= 0
  float momentum = 0.9f;             // [0, 1), momentum SGD and LARS
  float trust_coefficient = 0.001f;  // > 0, LARS
  float l1 = 0.0f;                   // >= 0, FTRL
  float l2 = 0.0f;                   // >= 0, FTRL
  float ftrl_beta = 1.0f;            // >= 0, FTRL
  float clip_value = 0.0f;           // each element of a row's gradient to [-v, v]; 0: off
  float clip_row_norm = 0.0f;        // a row's gradient to this norm, after clip_value; 0: off
  float max_norm = 0.0f;             // a row's weights to this norm, after the step; 0: off
  float max_norm_type = 2.0f;        // p of that norm, (sum of |w|^p)^(1/p); 0: the largest |w|
  DecayMode decay_mode = DecayMode::kL2;  // not AdamW, Lion, LAMB, LARS, FTRL
  // A row that is touched again catches up on the steps in between: its weights shrink by
  // (1 - learning_rate * weight_decay) ^ steps. For decoupled decay (SGD's L2 is the same thing).
  bool lazy_decay = false;
  float lazy_decay_least = 0.0f;  // [0, 1): the steps in between shrink to no less than this factor
  // Adam and LAMB kinds: t is the row's own number of updates, not the training step.
  bool row_bias_correction = false;
  bool stochastic_rounding = false;  // of fp16 and bf16 weights
  // Rows keep how often and when they were touched (row_math/touches.h).
  bool touches = false;
  ShowParams shows;
  StateType state_type = StateType::kFp32;
  CounterParams counter;
  AverageParams average;
};

// Numbers that the primary resolves once per push and logs. Applying a record computes no power of
// the training step and reads no schedule or changed options, so replicas get the same bits.
struct UpdateScalars {
  float learning_rate = 0.0f;
  float bias_correction1 = 1.0f;  // 1 - beta1^t
  float bias_correction2 = 1.0f;  // 1 - beta2^t
  float gradient_scale = 1.0f;  // gradients are multiplied by it first: 1/N for a mean of trainers
  float clip_value = 0.0f;      // as in OptimizerParams, as of this step
  float clip_row_norm = 0.0f;
  uint64_t step = 0;
  uint32_t time_s = 0;  // since 1970, by the primary's clock; 0: the table's rows keep no touches
};

enum class InitializerKind : uint8_t {
  // The first values of a table that names none; the coordinator replaces it when the table is made
  // (FirstValuesOf in common/tables/table_spec.h). Rows of a table that no coordinator made are
  // zero.
  kScaled = 0,
  kConstant = 1,  // a
  kUniform = 2,   // [a, b)
  kNormal = 3,    // mean a, standard deviation b
  kTruncatedNormal =
      4,  // the same, redrawn (by inverse CDF on a narrower range) to within two deviations
  kZero = 5,
};
constexpr InitializerKind kLastInitializerKind = InitializerKind::kZero;

struct InitializerParams {
  InitializerKind kind = InitializerKind::kScaled;
  float a = 0.0f;
  float b = 0.0f;
};

enum class NanPolicy : uint8_t { kReject = 0, kSkip = 1, kAllow = 2 };

// The most elements of a row (common/tables/table_spec.h: kDimMax); bounds the buffers on the
// stack. A multiple of 32.
constexpr uint32_t kDimLimit = 8192;

HOTBED_HD constexpr uint32_t BytesPerWeight(WeightType type) {
  return type == WeightType::kFp32 ? 4u : 2u;
}

// Bytes of one row of `dim` elements on the wire.
HOTBED_HD constexpr uint32_t RowWireBytes(RowType type, uint32_t dim) {
  return type == RowType::kFp32 ? 4u * dim : type == RowType::kInt8 ? dim + 8u : 2u * dim;
}

// Bytes of a row's touches, and of its shows and clicks.
constexpr uint32_t kTouchBytes = 16;
constexpr uint32_t kShowBytes = 8;

// Optimizer state of a row of `dim` weights, in this order: `vectors` of dim elements of the state
// type, padding to 4 bytes, then 4-byte scalars: the row's statistic (fp32), its count (fp32), its
// number of updates (u32), the step of its last update (u32), its shows and clicks, its touches
// (touches.h), each present if its `has_` flag is set.
struct StateLayout {
  uint32_t vectors = 0;
  bool has_statistic = false;  // row-wise Adagrad's sum, other row-wise kinds' second moment
  bool has_count = false;      // kRowwiseAdagradCounter
  bool has_updates = false;    // row_bias_correction
  bool has_last_step = false;  // lazy_decay, kRowwiseAdagradCounter, average
  bool has_shows = false;
  bool has_touches = false;  // the last bytes of the state

  // Counts the bytes of the scalars after the statistic.
  HOTBED_HD constexpr uint32_t CounterBytes() const {
    return 4u * (uint32_t{has_count} + has_updates + has_last_step);
  }
  HOTBED_HD constexpr uint32_t VectorBytes(StateType type, uint32_t dim) const {
    return (vectors * dim * (type == StateType::kFp32 ? 4u : 2u) + 3u) & ~3u;
  }
  HOTBED_HD constexpr uint32_t Bytes(StateType type, uint32_t dim) const {
    return VectorBytes(type, dim) + 4u * uint32_t{has_statistic} + CounterBytes() + TouchBytes();
  }
  HOTBED_HD constexpr uint32_t TouchBytes() const {
    return (has_touches ? kTouchBytes : 0u) + (has_shows ? kShowBytes : 0u);
  }
};

HOTBED_HD constexpr bool IsAdamKind(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW ||
         kind == OptimizerKind::kPartialRowwiseAdam || kind == OptimizerKind::kLamb ||
         kind == OptimizerKind::kPartialRowwiseLamb || kind == OptimizerKind::kAmsGrad;
}

// Where a kind's weight decay enters.
enum class DecayWay : uint8_t {
  kNone,       // it has none
  kOwn,        // in its formula
  kChoice,     // by DecayMode
  kDecoupled,  // always decoupled
};

// Properties of a kind besides its formula, for the rest of the code.
struct OptimizerTraits {
  uint32_t vectors = 0;
  bool has_statistic = false;
  bool needs_whole_row = false;
  DecayWay decay = DecayWay::kChoice;
};

HOTBED_HD constexpr OptimizerTraits TraitsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return {0, false, false, DecayWay::kChoice};
    case OptimizerKind::kNone:
      return {0, false, false, DecayWay::kNone};
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kRowwiseRmsProp:
    case OptimizerKind::kRowwiseAdagradCounter:
      return {0, true, true, DecayWay::kChoice};
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kMomentumSgd:
    case OptimizerKind::kRmsProp:
      return {1, false, false, DecayWay::kChoice};
    case OptimizerKind::kLion:
      return {1, false, false, DecayWay::kDecoupled};
    case OptimizerKind::kLars:
      return {1, false, true, DecayWay::kOwn};
    case OptimizerKind::kPartialRowwiseAdam:
      return {1, true, true, DecayWay::kChoice};
    case OptimizerKind::kPartialRowwiseLamb:
      return {1, true, true, DecayWay::kOwn};
    case OptimizerKind::kAdam:  // first and second moment
      return {2, false, false, DecayWay::kChoice};
    case OptimizerKind::kAdamW:
      return {2, false, false, DecayWay::kDecoupled};
    case OptimizerKind::kLamb:
      return {2, false, true, DecayWay::kOwn};
    case OptimizerKind::kFtrl:  // linear term, sum of squares
      return {2, false, false, DecayWay::kNone};
    case OptimizerKind::kAdadelta:  // averages of the squares of gradients and of steps
      return {2, false, false, DecayWay::kChoice};
    case OptimizerKind::kAmsGrad:  // as Adam, and the largest second moment
      return {3, false, false, DecayWay::kChoice};
  }
  return {};
}

// Whether rows of the kind keep a count.
HOTBED_HD constexpr bool CountsUpdates(OptimizerKind kind) {
  return kind == OptimizerKind::kRowwiseAdagradCounter;
}

HOTBED_HD constexpr StateLayout LayoutOfState(const OptimizerParams& params) {
  const OptimizerTraits traits = TraitsOf(params.kind);
  StateLayout layout;
  layout.vectors = traits.vectors;
  layout.has_statistic = traits.has_statistic;
  layout.has_count = CountsUpdates(params.kind);
  layout.has_updates = params.row_bias_correction && IsAdamKind(params.kind);
  layout.has_last_step = params.lazy_decay || layout.has_count || params.average.rate > 0;
  layout.has_shows = params.shows.kept;
  layout.has_touches = params.touches;
  return layout;
}

// Bytes of optimizer state of a row of `dim` weights.
HOTBED_HD constexpr uint32_t StateBytes(const OptimizerParams& params, uint32_t dim) {
  return LayoutOfState(params).Bytes(params.state_type, dim);
}

// Whether an update needs the whole row. Such tables are sliced by columns only if the table asks
// for one statistic per slice.
HOTBED_HD constexpr bool NeedsRowStatistics(const OptimizerParams& params) {
  return TraitsOf(params.kind).needs_whole_row || params.clip_row_norm > 0 || params.max_norm > 0;
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_TYPES_H_
