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
#define HOTBED_FOR_KIND(of) \
  case OptimizerKind::of:   \
    return f(KindOf<OptimizerKind::of>());
  switch (StepKind(kind)) {
    HOTBED_STEP_KINDS(HOTBED_FOR_KIND)
    case OptimizerKind::kAdamW:
      return f(KindOf<OptimizerKind::kAdam>());
  }
#undef HOTBED_FOR_KIND
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_STEP_KINDS_H_
