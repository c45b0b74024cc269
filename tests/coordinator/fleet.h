// Shard servers as the coordinator sees them, without rows: they send heartbeats, activate what
// they are the primary of, let learners join, die and come back. One step at a time, over a
// CoreRig.
#ifndef HOTBED_TESTS_COORDINATOR_FLEET_H_
#define HOTBED_TESTS_COORDINATOR_FLEET_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {

class Fleet {
 public:
  enum class State { kUp, kPaused, kDown };
  struct Server {
    std::string name;
    std::string cluster;
    ServerId id = 0;
    Incarnation incarnation = 0;
    State state = State::kDown;
    bool stopping = false;                        // SIGTERM
    bool joins = true;                            // learners of its shards catch up
    std::map<uint64_t, Epoch> replicas_lost;      // said in every heartbeat
    std::vector<v1::TransferProgress> transfers;  // likewise
    std::string lost_why;
    std::set<std::string> deaf_to;  // servers that reach it no more
    uint64_t known = 0;
    std::map<uint64_t, v1::ShardRecord> records;
    v1::TransferLimits limits;
    v1::ServerLoad load;
  };

  explicit Fleet(CoreRig* rig) : rig_(rig) {}
  // Speaks to another coordinator from now on.
  void Follow(CoreRig* rig) { rig_ = rig; }
  bool may_fail = false;  // the coordinator or its store

  // A new process of the server of that name; the first one makes it.
  Server& Start(const std::string& name) {
    Server& s = servers_[name];
    s.name = name;
    auto reply = rig_->Register(name, s.id, s.cluster);
    EXPECT_TRUE(reply.ok() || may_fail) << reply.status();
    if (!reply.ok()) return s;
    const ServerId id = reply->server();
    s = {.name = name,
         .cluster = reply->cluster_id(),
         .id = id,
         .incarnation = reply->incarnation(),
         .state = State::kUp};
    return s;
  }
  // SIGKILL: its stream breaks, its port is closed.
  void Kill(const std::string& name) {
    Server& s = servers_.at(name);
    s.state = State::kDown;
    rig_->Step(StreamBrokenEvent{s.id, s.incarnation});
    AnswerProbes();
  }
  // Its machine is gone, or it is stopped by SIGSTOP: nothing is heard of it.
  void Silence(const std::string& name) { servers_.at(name).state = State::kPaused; }

  void AnswerProbes() {
    for (const ProbeRequest& probe : std::exchange(rig_->probes, {})) {
      ProbeAnswer answer = ProbeAnswer::kRefused;
      for (const auto& [name, s] : servers_) {
        if (s.id != probe.server || s.incarnation != probe.incarnation) continue;
        if (s.state == State::kUp) answer = ProbeAnswer::kAnswers;
        if (s.state == State::kPaused) answer = ProbeAnswer::kSilent;
      }
      rig_->Step(ProbedEvent{probe.server, probe.incarnation, answer});
    }
  }

  // One heartbeat with what it leads to. False: its lease was lost.
  bool Beat(Server* s) {
    v1::HeartbeatRequest request;
    request.set_server(s->id);
    request.set_incarnation(s->incarnation);
    request.set_plan_revision_known(s->known);
    request.set_draining(s->stopping);
    *request.mutable_load() = s->load;
    if (s->joins) ReportJoins(*s, &request);
    for (const auto& [packed, epoch] : s->replicas_lost) {
      v1::LostReplica* lost = request.add_replicas_lost();
      lost->set_shard(packed);
      lost->set_epoch(epoch);
      lost->set_why(s->lost_why);
    }
    ReportHeld(*s, &request);
    for (const v1::TransferProgress& transfer : s->transfers) *request.add_transfers() = transfer;
    ReportSilent(*s, &request);
    auto reply = rig_->Call<v1::HeartbeatReply>(request);
    if (!reply.ok()) return true;  // the coordinator starts
    if (!reply->lease_held()) return false;
    s->limits = reply->transfer_limits();
    Take(reply->map(), s);
    Activate(s);
    return true;
  }

  // Heartbeats of all that are up, in steps of 100 ms.
  void Run(int64_t ms) {
    for (int64_t t = 0; t < ms; t += 100) {
      rig_->Tick(100);
      rig_->Pump();
      AnswerProbes();
      rig_->Pump();
      for (auto& [name, s] : servers_) {
        if (s.state == State::kUp && !Beat(&s)) Start(name);
      }
    }
  }

  Server& at(const std::string& name) { return servers_.at(name); }
  std::map<std::string, Server>& all() { return servers_; }

 private:
  bool Deaf(const Server& s, ServerId other) const {
    return std::any_of(s.deaf_to.begin(), s.deaf_to.end(),
                       [&](const std::string& name) { return servers_.at(name).id == other; });
  }
  void ReportSilent(const Server& s, v1::HeartbeatRequest* request) const {
    for (const auto& [packed, record] : s.records) {
      if (record.primary().server() != s.id) continue;
      for (const v1::Member& member : record.members()) {
        if (!Deaf(s, member.server())) continue;
        v1::SilentMember* silent = request->add_silent();
        silent->set_shard(packed);
        silent->set_epoch(record.epoch());
        *silent->mutable_member() = member;
      }
    }
  }
  void ReportHeld(const Server& s, v1::HeartbeatRequest* request) const {
    for (const auto& [packed, record] : s.records) {
      const absl::StatusOr<ShardRecord> decoded = FromProto(record);
      if (!decoded.ok() || !decoded->AsksFor({s.id, s.incarnation})) continue;
      v1::HeldReplica nothing;
      nothing.set_shard(packed);
      nothing.set_nothing(true);
      *request->add_held() = rig_->HeldBy(s.id, packed).value_or(nothing);
    }
  }
  void ReportJoins(const Server& s, v1::HeartbeatRequest* request) const {
    for (const auto& [packed, record] : s.records) {
      if (record.primary().server() != s.id || !record.active()) continue;
      for (const v1::Member& learner : record.learners()) {
        if (Deaf(s, learner.server())) continue;
        v1::JoinReady* ready = request->add_join_ready();
        ready->set_shard(packed);
        ready->set_epoch(record.epoch());
        *ready->mutable_member() = learner;
      }
    }
  }
  static void Take(const v1::ClusterMap& map, Server* s) {
    if (!map.delta()) s->records.clear();
    for (const v1::ShardRecord& r : map.shards()) s->records[r.shard()] = r;
    for (const TableId id : map.tables_dropped()) {
      s->records.erase(s->records.lower_bound(ShardId{id, 0}.packed()),
                       s->records.lower_bound(ShardId{id + 1, 0}.packed()));
    }
    s->known = map.plan_revision();
  }
  void Activate(Server* s) {
    v1::ActivateShardsRequest request;
    request.set_server(s->id);
    request.set_incarnation(s->incarnation);
    for (const auto& [packed, record] : s->records) {
      if (record.active() || record.primary().server() != s->id ||
          record.primary().incarnation() != s->incarnation) {
        continue;
      }
      const auto& members = record.members();
      if (std::any_of(members.begin(), members.end(),
                      [&](const v1::Member& m) { return Deaf(*s, m.server()); })) {
        continue;  // its members have to hold what it does
      }
      v1::ShardEpoch* shard = request.add_shards();
      shard->set_shard(packed);
      shard->set_epoch(record.epoch());
    }
    if (request.shards().empty()) return;
    auto reply = rig_->Call<v1::ActivateShardsReply>(request);
    if (!reply.ok()) return;
    for (const v1::ShardRecord& r : reply->records()) s->records[r.shard()] = r;
  }

  CoreRig* rig_;
  std::map<std::string, Server> servers_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_FLEET_H_
