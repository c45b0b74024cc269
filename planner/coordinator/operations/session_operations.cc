#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr size_t kSessionNameBytesMax = 256;

class OpenSession {
 public:
  OpenSession(v1::OpenSessionRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (opened_) {
      const ClusterState::Session& session = state.sessions().at(request_.name());
      v1::OpenSessionReply reply;
      reply.set_session(session.id);
      reply.set_incarnation(session.incarnation);
      reply.set_cluster_id(state.cluster_id());
      return reply;
    }
    const std::string& name = request_.name();
    if (name.empty() || name.size() > kSessionNameBytesMax ||
        !std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isgraph(c); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "session name \"", absl::CEscape(name.substr(0, 80)), "\" of ", name.size(),
          " bytes, allowed: 1..", kSessionNameBytesMax, " printable characters without spaces"));
    }
    // The numbers of earlier sessions may be lost, and a session is of no use without a table.
    if (state.servers().empty()) {
      return absl::UnavailableError(
          absl::StrCat("session \"", name,
                       "\": this coordinator knows no server. Start one; if the "
                       "metadata of a cluster were lost, 'hotbed metadata rebuild --from-servers' "
                       "adopts the servers that ask"));
    }
    Transaction txn(&state);
    v1::OpenSessionReply record;
    auto existing = state.sessions().find(name);
    // One counter for all names: a shard that has forgotten sessions can tell by the incarnation
    // whether an unknown session may have been one of them.
    uint64_t counter = state.counters().sessions + 1;
    if (existing != state.sessions().end()) {
      counter = std::max(counter, existing->second.incarnation + 1);
      record.set_session(existing->second.id);
    } else if (state.sessions().size() >= context_.limits.sessions_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("session \"", name, "\": the cluster has ", state.sessions().size(),
                       " session names, the limit is ", context_.limits.sessions_max,
                       "; give restarted clients their old name"));
    } else {
      record.set_session(counter);
    }
    record.set_incarnation(counter);
    txn.Put(keys::kSessionCounter, absl::StrCat(counter));
    txn.Put(keys::Session(name), record.SerializeAsString());
    opened_ = true;
    return txn;
  }

 private:
  const v1::OpenSessionRequest request_;
  const OperationContext context_;
  bool opened_ = false;
};

}  // namespace

Operation MakeOperation(v1::OpenSessionRequest request, const OperationContext& context) {
  return OpenSession(std::move(request), context);
}

}  // namespace hotbed
