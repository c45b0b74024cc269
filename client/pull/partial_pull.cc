#include "client/pull/partial_pull.h"

#include "client/batch/scatter.h"

namespace hotbed {

uint64_t EndPartial(PullCall* call) {
  const bool late = absl::IsDeadlineExceeded(call->result());
  if (!late && !call->result().ok()) return 0;
  PullScratch& scratch = *call->scratch;
  if (late) scratch.join.Finish(scratch.pooled);
  uint64_t missing = 0;
  for (uint32_t p = 0; p < scratch.PartCount(); ++p) {
    if (scratch.PartIsTaken(p)) continue;
    if (const PooledPart* const part = scratch.Pooled(p); part != nullptr) {
      missing += PooledJoin::MarkMissing(scratch.pooled, *part);
    } else {
      const PlanPart& rows = scratch.plan.parts()[p];
      missing += MarkMissing(scratch.plan.group(rows), rows, scratch.targets);
    }
  }
  call->Accept();
  return missing;
}

}  // namespace hotbed
