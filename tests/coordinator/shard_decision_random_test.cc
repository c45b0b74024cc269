// The rules of membership over random records, wishes and views: every step keeps the record's
// invariants, and from any state with all servers live the steps end in the wish.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "planner/coordinator/state/record_text.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/shard_decision_rig.h"

namespace hotbed {
namespace shard_decision_random_test {

constexpr int kServers = 5;

std::string Joined(const std::vector<ServerId>& servers) { return absl::StrJoin(servers, " "); }

class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed) : random_(seed) {}

  std::vector<ServerId> Servers(size_t count) {
    std::vector<ServerId> all;
    for (ServerId server = 1; server <= kServers; ++server) all.push_back(server);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(std::min(count, all.size()));
    return all;
  }
  Member Process(ServerId server) { return {server, 1 + random_.Uniform(2)}; }
  // As the rules themselves leave it: members and learners on servers of their own.
  ShardRecord Record() {
    const std::vector<ServerId> servers = Servers(kServers);
    const size_t members = 1 + random_.Uniform(4);
    ShardRecord record;
    record.epoch = 1 + random_.Uniform(100);
    for (size_t i = 0; i < members; ++i) record.members.push_back(Process(servers[i]));
    record.primary = record.members[random_.Uniform(members)];
    const size_t learners = random_.Uniform(kServers - members + 1);
    for (size_t i = 0; i < learners; ++i) {
      record.learners.push_back(Process(servers[members + i]));
      if (random_.OneIn(3)) record.readers.push_back(record.learners.back().server);
    }
    record.active = random_.OneIn(2);
    record.base = record.members;
    if (!record.active) {
      record.base.clear();
      for (const ServerId server : Servers(1 + random_.Uniform(3))) {
        // Learners are added in active epochs only, when the base are the members.
        if (!ContainsServer(record.learners, server)) record.base.push_back(Process(server));
      }
      if (random_.OneIn(4)) record.base.clear();
    }
    for (const ServerId server : Servers(random_.OneIn(4) ? 2 : 0)) {
      if (ContainsServer(record.members, server) || ContainsServer(record.learners, server))
        continue;
      record.passed_over.push_back({server, {1 + random_.Uniform(3), random_.Uniform(4)}});
    }
    return record;
  }
  ShardWish Wish() {
    ShardWish wish;
    wish.replicas = 1 + random_.Uniform(3);
    if (!random_.OneIn(4)) wish.servers = Servers(random_.Uniform(5));
    if (random_.OneIn(3)) wish.readers = Servers(random_.Uniform(4));
    return wish;
  }
  HeldReplica Held() {
    return {.nothing = random_.OneIn(6),
            .damaged = random_.OneIn(8),
            .behind = random_.OneIn(4),
            .end = {1 + random_.Uniform(3), random_.Uniform(4)},
            .member_of = random_.Uniform(100)};
  }
  Cluster View() {
    Cluster cluster;
    for (ServerId server = 1; server <= kServers; ++server) {
      if (!random_.OneIn(3)) cluster.live[server] = 1 + random_.Uniform(2);
      if (random_.OneIn(3)) cluster.awaited.insert(server);
      if (random_.OneIn(2)) cluster.joined.insert(server);
      if (random_.OneIn(8)) cluster.lost.insert(server);
      if (random_.OneIn(8)) cluster.silent.insert(server);
      if (random_.OneIn(4)) cluster.unheard.insert(server);
      if (random_.OneIn(3)) cluster.waited.insert(server);
      if (random_.OneIn(5)) {
        cluster.stops[server] = random_.OneIn(3) ? ServerStops::kSoon : ServerStops::kHandsOver;
      }
      cluster.held[server] = Held();
    }
    cluster.room = Servers(random_.Uniform(kServers + 1));
    cluster.joined_in_last_epoch = random_.OneIn(4);
    return cluster;
  }
  bool OneIn(uint64_t n) { return random_.OneIn(n); }

 private:
  Random random_;
};

std::string WorldText(const ShardRecord& record, const ShardWish& wish, const Cluster& cluster) {
  std::string text =
      absl::StrCat(RecordText(record), "; wish ", wish.replicas, " [", Joined(wish.servers),
                   "] readers [", Joined(wish.readers), "]; live");
  for (const auto& [server, incarnation] : cluster.live) {
    absl::StrAppend(&text, " s", server, "/", incarnation);
  }
  return text;
}

bool IsLive(const Cluster& cluster, const Member& member) {
  const auto it = cluster.live.find(member.server);
  return it != cluster.live.end() && it->second == member.incarnation;
}

// Whether the process may be a member next because it holds everything acknowledged.
bool HoldsAll(const ShardRecord& record, const Cluster& cluster, const ShardDecision& decision,
              const Member& member) {
  switch (decision.step) {
    case ShardStep::kTakeBase:
      return !record.active && Contains(record.base, member);
    case ShardStep::kTakeBack: {
      Members past = record.members;
      if (!record.active) past.insert(past.end(), record.base.begin(), record.base.end());
      return std::any_of(past.begin(), past.end(),
                         [&](const Member& m) { return m.server == member.server; });
    }
    case ShardStep::kJoin:
      return Contains(record.members, member) ||
             (record.active && Contains(record.learners, member) && !cluster.joined_in_last_epoch &&
              cluster.joined.count(member.server) != 0);
    default:
      return Contains(record.members, member);
  }
}

// No server that may hold the shard and was heard of holds more than the one taken. A server that
// was not heard of, or whose replica is lost though its process lives, is kept.
void CheckTaken(const ShardRecord& record, const Cluster& cluster, const ShardDecision& decision) {
  if (!record.active && record.base.empty()) return;  // nothing was acknowledged
  const ServerId taken = decision.next.primary.server;
  const HeldReplica& best = cluster.held.at(taken);
  EXPECT_FALSE(best.nothing);
  if (record.active && best.member_of == record.epoch && !best.damaged) return;
  Members asked = record.members;
  if (!record.active) asked.insert(asked.end(), record.base.begin(), record.base.end());
  bool all = true;
  for (const Member& member : asked) {
    const ServerId server = member.server;
    const bool lives = cluster.live.count(server) != 0;
    const bool lost = lives && cluster.lost.count(server) != 0;
    const bool heard = lives && (lost || cluster.unheard.count(server) == 0);
    all = all && heard;
    if (server == taken) continue;
    if (!heard || lost) {
      EXPECT_TRUE(decision.next.FindPassedOver(server) != nullptr) << "server " << server;
      continue;
    }
    const HeldReplica& other = cluster.held.at(server);
    if (other.nothing || other.damaged) continue;
    EXPECT_FALSE(best.damaged);
    // The end of an inactive epoch's primary counts as it was when that was taken.
    if (record.passed_over.empty() || record.active) {
      EXPECT_GE(best.end, other.end);
    }
  }
  const bool waited = std::any_of(asked.begin(), asked.end(), [&](const Member& member) {
    return cluster.waited.count(member.server) != 0;
  });
  EXPECT_TRUE(all || waited);
  EXPECT_TRUE(all || !best.damaged);
}

// Nothing is given to a server that is about to stop, and it leaves only where another stays.
void CheckStops(const ShardRecord& record, const Cluster& cluster, const ShardDecision& decision) {
  const ShardRecord& next = decision.next;
  const auto stops = [&](const Member& m) { return cluster.stops.count(m.server) != 0; };
  EXPECT_FALSE(decision.step == ShardStep::kSwitch && stops(next.primary));
  EXPECT_FALSE(decision.step == ShardStep::kAddLearner && stops(next.learners.back()));
  if (decision.reason.find("about to stop") == std::string::npos) return;
  EXPECT_FALSE(std::all_of(next.members.begin(), next.members.end(), stops));
  for (const Member& m : record.members) EXPECT_TRUE(Contains(next.members, m) || stops(m));
}

void CheckNext(const ShardRecord& record, const Cluster& cluster, const ShardDecision& decision) {
  const ShardRecord& next = decision.next;
  ASSERT_FALSE(next.members.empty());
  EXPECT_TRUE(Contains(next.members, next.primary));
  std::set<ServerId> servers;
  for (const Members* some : {&next.members, &next.learners}) {
    for (const Member& member : *some) {
      EXPECT_TRUE(servers.insert(member.server).second) << "server " << member.server << " twice";
      if (decision.step != ShardStep::kNone) {
        EXPECT_TRUE(IsLive(cluster, member));
      }
    }
  }
  for (const Member& member : next.members) {
    EXPECT_TRUE(HoldsAll(record, cluster, decision, member));
  }
  CheckStops(record, cluster, decision);
  if (decision.step == ShardStep::kTakeBack) CheckTaken(record, cluster, decision);
  for (const PassedOver& passed : record.passed_over) {
    const bool stays = next.FindPassedOver(passed.server) != nullptr &&
                       *next.FindPassedOver(passed.server) == passed;
    const bool taken = next.primary.server == passed.server;
    const HeldReplica& said = cluster.held.at(passed.server);
    const bool less =
        decision.step == ShardStep::kHeard && (said.nothing || said.end <= passed.chosen);
    // No epoch was active since: the members of the base are compared again.
    const bool again =
        !record.active && ContainsServer(record.base, passed.server) &&
        (decision.step == ShardStep::kTakeBase || decision.step == ShardStep::kTakeBack);
    EXPECT_TRUE(stays || taken || less || again) << "server " << passed.server;
  }
  for (const ServerId reader : next.readers) {
    EXPECT_TRUE(std::any_of(next.learners.begin(), next.learners.end(),
                            [&](const Member& m) { return m.server == reader; }));
  }
  if (decision.step == ShardStep::kJoin) {  // nobody waited for what only follows
    for (const ServerId reader : record.readers) {
      EXPECT_TRUE(std::none_of(next.members.begin(), next.members.end(),
                               [&](const Member& m) { return m.server == reader; }));
    }
  }
  EXPECT_FALSE(decision.reason.empty() && decision.step != ShardStep::kNone);
  EXPECT_EQ(decision.reason.find("would break a rule"), std::string::npos);
  const bool only_added = std::all_of(record.learners.begin(), record.learners.end(),
                                      [&](const Member& m) { return Contains(next.learners, m); });
  const bool same = next.primary == record.primary && next.members == record.members && only_added;
  EXPECT_EQ(next.epoch, record.epoch + (same ? 0 : 1));
  EXPECT_EQ(next.active, same && record.active);
  EXPECT_TRUE(std::is_permutation(next.base.begin(), next.base.end(), record.base.begin(),
                                  record.base.end()));
  if (record.active && !same) {
    EXPECT_EQ(next.base.front(), record.primary);
  } else {
    EXPECT_EQ(next.base, record.base);
  }
  // Alive, it may answer strict pulls until it has promised the epoch that is to be active.
  const Member& last = record.active || record.base.empty() ? record.primary : record.base.front();
  const bool leaves = Contains(record.members, last) && !Contains(next.members, last);
  EXPECT_FALSE(leaves && decision.step == ShardStep::kFailOver && IsLive(cluster, last) &&
               cluster.lost.count(last.server) == 0);
  if (next.learners.size() > record.learners.size()) {
    EXPECT_TRUE(record.active);  // so that no process of the base can be half a replica
    EXPECT_EQ(next.learners.size(), record.learners.size() + 1);
  }
}

TEST(ShardDecisionRandomTest, KeepsTheRecordsInvariants) {
  const TestSeed seed(5);
  RandomWorld world(seed.value());
  std::map<ShardStep, int> steps;
  for (int i = 0; i < 300'000 && !testing::Test::HasFailure(); ++i) {
    const ShardRecord record = world.Record();
    const ShardWish wish = world.Wish();
    const Cluster cluster = world.View();
    const ShardDecision decision = cluster.Decide(record, wish);
    SCOPED_TRACE(absl::StrCat("world ", i, ": ", WorldText(record, wish, cluster), " -> ",
                              RecordText(decision.next), " (", decision.reason, ")"));
    CheckNext(record, cluster, decision);
    ++steps[decision.step];
  }
  if (testing::Test::HasFailure()) return;
  for (int step = 0; step <= static_cast<int>(ShardStep::kDropMember); ++step) {
    EXPECT_GT(steps[static_cast<ShardStep>(step)], 100) << "step " << step << " was hardly tried";
  }
}

// All servers live, every learner caught up, every epoch activated: the end is the wish.
void CheckEnd(const ShardRecord& record, const ShardWish& wish) {
  EXPECT_EQ(record.members.size(), wish.replicas);
  std::vector<ServerId> wanted = wish.servers;
  if (wanted.size() > wish.replicas) wanted.resize(wish.replicas);
  if (!wanted.empty()) {
    EXPECT_EQ(record.primary.server, wanted.front());
  }
  std::set<ServerId> held;
  for (const Member& member : record.members) held.insert(member.server);
  for (const ServerId server : wanted) EXPECT_EQ(held.count(server), 1u);
  size_t readers = 0;
  for (const ServerId server : wish.readers) readers += held.count(server) == 0 ? 1 : 0;
  EXPECT_EQ(record.learners.size(), readers);
}

TEST(ShardDecisionRandomTest, EndsInTheWish) {
  const TestSeed seed(6);
  RandomWorld world(seed.value());
  for (int i = 0; i < 50'000 && !testing::Test::HasFailure(); ++i) {
    ShardRecord record = world.Record();
    ShardWish wish = world.Wish();
    Cluster cluster = AllLive(kServers);
    for (auto& [server, incarnation] : cluster.live) {
      incarnation = world.OneIn(3) ? 2 : 1;
      cluster.joined.insert(server);
      cluster.held[server] = {.end = {0, 0}};  // no more than any that was taken
    }
    const std::string begin = WorldText(record, wish, cluster);
    int steps = 0;
    for (; steps < 40; ++steps) {
      const ShardDecision decision = cluster.Decide(record, wish);
      if (decision.step == ShardStep::kNone && record.active) break;
      record = decision.next;
      if (decision.step != ShardStep::kNone || record.active) continue;
      record.active = true;
      record.base = record.members;
    }
    SCOPED_TRACE(absl::StrCat("world ", i, ": ", begin, " ends as ", RecordText(record)));
    EXPECT_LT(steps, 40);
    CheckEnd(record, wish);
  }
}

}  // namespace shard_decision_random_test
}  // namespace hotbed
