// Candidates for admission (touches.h) have rows in the tiers, in checkpoints and at every replica,
// so that their counters are kept. To readers of rows they do not exist.
#ifndef HOTBED_ROW_MATH_CANDIDATE_H_
#define HOTBED_ROW_MATH_CANDIDATE_H_

#include <cstdint>

#include "row_math/touches.h"

namespace hotbed {

// `row_end`: behind the last byte of a row's state, which are its touches if there is admission.
inline bool IsCandidateRow(const AdmissionParams& admission, const uint8_t* row_end) {
  return admission.Needed() > 1 && LoadTouches(row_end - kTouchBytes).count < admission.Needed();
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_CANDIDATE_H_
