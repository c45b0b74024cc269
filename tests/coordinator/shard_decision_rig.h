// The fixture of the tests of the membership rules: a cluster as the coordinator sees it.
#ifndef HOTBED_TESTS_COORDINATOR_SHARD_DECISION_RIG_H_
#define HOTBED_TESTS_COORDINATOR_SHARD_DECISION_RIG_H_

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "planner/coordinator/membership/shard_decision.h"

namespace hotbed {

using Members = std::vector<Member>;

struct Cluster {
  std::map<ServerId, Incarnation> live;
  std::set<ServerId> awaited;
  std::vector<ServerId> room;  // for refills, in this order
  std::set<ServerId> joined;   // reported in this epoch, those of `live`
  bool joined_in_last_epoch = false;
  std::set<ServerId> lost;  // live ones that reported in this epoch that their replica is lost
  // What live servers say of the replica on their disk; of others: its log ends at (5, 50).
  std::map<ServerId, HeldReplica> held;
  std::set<ServerId> unheard;             // live ones that have not said it yet
  std::set<ServerId> waited;              // live ones that have waited long enough for the others
  std::map<ServerId, ServerStops> stops;  // live ones
  std::set<ServerId> silent;  // their primary reported in this epoch that it does not hear of them

  // `ask` with what the coordinator knows.
  template <typename Ask>
  auto With(const ShardRecord& record, const Ask& ask) const {
    const auto is_live = [this](ServerId server) {
      const auto it = live.find(server);
      return it == live.end() ? Incarnation{0} : it->second;
    };
    const auto is_awaited = [this](ServerId server) { return awaited.count(server) != 0; };
    const auto refill = [&](const std::vector<ServerId>& holders) {
      for (const ServerId server : room) {
        const bool holds = std::count(holders.begin(), holders.end(), server) != 0;
        if (!holds && is_live(server) != 0 && stops.count(server) == 0) return server;
      }
      return ServerId{0};
    };
    const auto join_ready = [&](Epoch epoch, const Member& member) {
      return epoch == record.epoch - (joined_in_last_epoch ? 1 : 0) &&
             joined.count(member.server) != 0 && is_live(member.server) == member.incarnation;
    };
    const auto out = [&](Epoch epoch, const Member& member) {
      if (epoch != record.epoch) return MemberOut::kNo;
      if (lost.count(member.server) != 0 && is_live(member.server) == member.incarnation) {
        return MemberOut::kReplicaLost;
      }
      return silent.count(member.server) != 0 ? MemberOut::kSilent : MemberOut::kNo;
    };
    const auto has_held = [this](const Member& member) {
      std::optional<HeldReplica> said;
      if (unheard.count(member.server) != 0) return said;
      const auto it = held.find(member.server);
      said = it == held.end() ? HeldReplica{.end = {5, 50}} : it->second;
      return said;
    };
    const auto has_waited = [this](ServerId server) { return waited.count(server) != 0; };
    const auto is_stopping = [this](ServerId server) {
      const auto it = stops.find(server);
      return it == stops.end() ? ServerStops::kNo : it->second;
    };
    return ask(ServerView{.live = is_live,
                          .awaited = is_awaited,
                          .refill = refill,
                          .join_ready = join_ready,
                          .out = out,
                          .held = has_held,
                          .waited = has_waited,
                          .stops = is_stopping});
  }

  ShardDecision Decide(const ShardRecord& record, const ShardWish& wish) const {
    return With(record, [&](const ServerView& view) { return DecideShard(record, wish, view); });
  }
  absl::StatusOr<ShardDecision> Choose(const ShardRecord& record, ServerId server) const {
    return With(record,
                [&](const ServerView& view) { return ChooseReplica(record, server, view); });
  }
};

inline Cluster AllLive(int servers) {
  Cluster cluster;
  for (int server = 1; server <= servers; ++server) {
    cluster.live[server] = 1;
    cluster.room.push_back(server);
  }
  return cluster;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_SHARD_DECISION_RIG_H_
