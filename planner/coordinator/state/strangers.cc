#include "planner/coordinator/state/strangers.h"

#include <algorithm>

namespace hotbed {
namespace {

bool KnowsRun(const v1::RegisterServerRequest& request, uint64_t run) {
  const auto& before = request.runs_before();
  return request.run() == run || std::find(before.begin(), before.end(), run) != before.end();
}

bool IsRegistered(const ClusterState& state, const v1::RegisterServerRequest& said) {
  return said.cluster_id() == state.cluster_id() && state.servers().contains(said.server());
}

}  // namespace

bool Strangers::IsEmpty(const ClusterState& state) {
  return state.servers().empty() && state.tables().empty();
}

bool Strangers::MayAdopt(const ClusterState& state, const std::string& cluster) {
  const bool ours = state.cluster_id() == cluster;
  const bool goes_on = state.given_before().session() != 0;
  return IsEmpty(state) ? ours || !goes_on : ours && state.generation() > 0;
}

bool Strangers::AwaitsRebuild(const ClusterState& state) {
  return state.servers().empty() && state.given_before().session() != 0;
}

void Strangers::Note(int64_t now_ns, const v1::RegisterServerRequest& request) {
  const std::pair<std::string, ServerId> key = {request.cluster_id(), request.server()};
  const auto it = strangers_.find(key);
  if (it == strangers_.end()) {
    if (strangers_.size() < kStrangersMax) strangers_[key] = {request, now_ns, "", 0};
    return;
  }
  Stranger& known = it->second;
  if (KnowsRun(request, known.said.run()) || now_ns - known.heard_ns > kHeardNs) {
    const bool still = known.said.run() == request.run() && now_ns - known.rival_ns <= kHeardNs;
    known = {request, now_ns, still ? known.rival : "", still ? known.rival_ns : 0};
  } else {
    known.rival = request.address();  // the directory of one is a copy of the other's
    known.rival_ns = now_ns;
  }
}

std::vector<const Strangers::Stranger*> Strangers::Waiting(int64_t now_ns,
                                                           const ClusterState& state) const {
  std::vector<const Stranger*> waiting;
  for (const auto& [key, stranger] : strangers_) {
    if (IsRegistered(state, stranger.said) || now_ns - stranger.heard_ns > kHeardNs) continue;
    waiting.push_back(&stranger);
  }
  return waiting;
}

std::vector<const Strangers::Stranger*> Strangers::Known(int64_t now_ns,
                                                         const ClusterState& state) const {
  std::vector<const Stranger*> known = Waiting(now_ns, state);
  for (const auto& [key, stranger] : strangers_) {
    if (IsRegistered(state, stranger.said)) known.push_back(&stranger);
  }
  return known;
}

}  // namespace hotbed
