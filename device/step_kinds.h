// The optimizer kinds that have a step of their own, as types: one kernel per kind, so that a
// kernel needs only the registers of its kind.
#ifndef HOTBED_DEVICE_STEP_KINDS_H_
#define HOTBED_DEVICE_STEP_KINDS_H_

#include "device/row_step.h"
#include "row_math/types.h"

namespace hotbed {
namespace device {

template <OptimizerKind kOf>
struct KindOf {
  static constexpr OptimizerKind kKind = kOf;
};

// Calls f(KindOf<kind>()) for a kind of StepKind.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // an f of the host is called by the host only
#endif
template <typename F>
HOTBED_ROW_FN void ForStepKind(OptimizerKind kind, F f) {
  switch (StepKind(kind)) {
    case OptimizerKind::kSgd:
      return f(KindOf<OptimizerKind::kSgd>());
    case OptimizerKind::kAdagrad:
      return f(KindOf<OptimizerKind::kAdagrad>());
    case OptimizerKind::kRowwiseAdagrad:
      return f(KindOf<OptimizerKind::kRowwiseAdagrad>());
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return f(KindOf<OptimizerKind::kAdam>());
    case OptimizerKind::kMomentumSgd:
      return f(KindOf<OptimizerKind::kMomentumSgd>());
    case OptimizerKind::kPartialRowwiseAdam:
      return f(KindOf<OptimizerKind::kPartialRowwiseAdam>());
    case OptimizerKind::kLamb:
      return f(KindOf<OptimizerKind::kLamb>());
    case OptimizerKind::kPartialRowwiseLamb:
      return f(KindOf<OptimizerKind::kPartialRowwiseLamb>());
    case OptimizerKind::kLars:
      return f(KindOf<OptimizerKind::kLars>());
    case OptimizerKind::kFtrl:
      return f(KindOf<OptimizerKind::kFtrl>());
    case OptimizerKind::kRmsProp:
      return f(KindOf<OptimizerKind::kRmsProp>());
    case OptimizerKind::kNone:
      return f(KindOf<OptimizerKind::kNone>());
    case OptimizerKind::kRowwiseRmsProp:
      return f(KindOf<OptimizerKind::kRowwiseRmsProp>());
    case OptimizerKind::kLion:
      return f(KindOf<OptimizerKind::kLion>());
    case OptimizerKind::kAdadelta:
      return f(KindOf<OptimizerKind::kAdadelta>());
  }
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_STEP_KINDS_H_
