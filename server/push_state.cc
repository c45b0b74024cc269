#include "server/push_state.h"

#include <utility>

namespace hotbed {
namespace {

constexpr size_t kSparesMax = 256;

std::vector<std::unique_ptr<PushState>>& Spares() {
  thread_local std::vector<std::unique_ptr<PushState>> spares;
  return spares;
}

}  // namespace

PushState* PushState::Take() {
  auto& spares = Spares();
  if (spares.empty()) return new PushState;
  PushState* state = spares.back().release();
  spares.pop_back();
  return state;
}

void PushState::Give() {
  std::unique_ptr<PushState> self(this);
  if (Spares().size() >= kSparesMax) return;
  kept_ids.clear();
  kept_gradients.clear();
  detail.clear();
  refusal = SegmentCode::kOk;
  replied = in_log = in_core = false;
  append_status = absl::OkStatus();
  Spares().push_back(std::move(self));
}

}  // namespace hotbed
