#include <optional>
#include <utility>

#include "planner/coordinator/operations/operations.h"

namespace hotbed {

Operation MakeOperation(v1::ChooseReplicaRequest request, const OperationContext& context) {
  return [request = std::move(request), context, written = std::optional<v1::ChooseReplicaReply>()](
             const ClusterState& state) mutable -> Next {
    if (written.has_value()) return Reply(*std::move(written));
    absl::StatusOr<Membership::Chosen> chosen =
        context.membership->Choose(state, context.now_ns, context.unix_ms, request);
    if (!chosen.ok()) return chosen.status();
    if (request.dry_run()) return Reply(std::move(chosen->reply));
    written = std::move(chosen->reply);
    return std::move(chosen->transaction);
  };
}

}  // namespace hotbed
