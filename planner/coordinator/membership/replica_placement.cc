#include "planner/coordinator/membership/replica_placement.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tables/shard_record.h"
#include "planner/coordinator/balance/cluster_view.h"

namespace hotbed {
uint64_t ShardBytes::Of(const ShardRecord& record) {
  const ServerId server = record.primary.server;
  auto [it, first] = of_server_.try_emplace(server);
  if (first) {
    if (const Leases::Lease* lease = leases_->Find(server)) {
      for (const v1::ShardLoad& load : lease->load.shards())
        it->second[load.shard()] = load.bytes();
    }
  }
  auto bytes = it->second.find(record.shard.packed());
  return bytes == it->second.end() ? 0 : bytes->second;
}

uint64_t RoomFor(uint64_t bytes) { return bytes + bytes / 4; }

absl::Status MayTakeReplicas(const ClusterState& state, const Leases& leases, ServerId server,
                             uint64_t bytes) {
  auto it = state.servers().find(server);
  if (it == state.servers().end()) {
    return absl::NotFoundError(
        absl::StrCat("server ", server, " is not known to cluster ", state.cluster_id()));
  }
  const v1::ServerInfo& info = it->second;
  const auto refuse = [&](absl::string_view why) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", info.name(), " (number ", server, ") ", why));
  };
  const Leases::Lease* const lease = leases.Find(server);
  if (!leases.Held(server)) return refuse("is down");
  if (lease->stopping) return refuse("is about to stop");
  if (info.draining()) return refuse("is being drained; undo that first");
  if (lease->load.read_only()) return refuse("is read-only: its disk is full or fails");
  const v1::ServerLoad& load = lease->load;
  if (bytes > 0 && load.has_free_bytes() && load.free_bytes() < RoomFor(bytes)) {
    return refuse(absl::StrCat("has ", load.free_bytes(), " bytes free for rows, ", RoomFor(bytes),
                               " are needed for ", bytes,
                               " bytes of rows to come; free space on its data disk (or raise its "
                               "--spill-bytes-max), or choose another server"));
  }
  return absl::OkStatus();
}

bool SharesDomain(const ClusterState& state, ServerId server, const std::vector<ServerId>& others) {
  auto one = state.servers().find(server);
  if (one == state.servers().end()) return false;
  const std::string domain = FailureDomainOf(one->second);
  for (const ServerId other : others) {
    auto it = state.servers().find(other);
    if (other != server && it != state.servers().end() && FailureDomainOf(it->second) == domain) {
      return true;
    }
  }
  return false;
}

ServerId PlaceForReplica(const ClusterState& state, const Leases& leases,
                         const PlaceSearch& search) {
  ServerId best = 0;
  std::tuple<bool, bool, uint64_t> best_cost;
  for (const auto& [id, info] : state.servers()) {
    uint64_t bytes = Contains(search.learners, id) ? 0 : search.bytes;
    if (bytes > 0 && search.bytes_to != nullptr) {
      auto others = search.bytes_to->find(id);
      if (others != search.bytes_to->end()) bytes += others->second;
    }
    if (Contains(search.avoid, id) || Contains(search.members, id) ||
        !MayTakeReplicas(state, leases, id, bytes).ok() ||
        SharesDomain(state, id, search.members)) {
      continue;
    }
    uint64_t shards = state.ShardsOfServer(id).size();
    if (search.promised != nullptr) {
      auto promised = search.promised->find(id);
      if (promised != search.promised->end()) shards += promised->second;
    }
    const bool busy = search.busy != nullptr && search.busy->contains(id);
    const std::tuple cost(!Contains(search.learners, id), busy, shards);
    if (best != 0 && cost >= best_cost) continue;
    best = id;
    best_cost = cost;
  }
  return best;
}

}  // namespace hotbed
