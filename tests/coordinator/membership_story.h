// The fixture of stories about shards with several replicas.
#ifndef HOTBED_TESTS_COORDINATOR_MEMBERSHIP_STORY_H_
#define HOTBED_TESTS_COORDINATOR_MEMBERSHIP_STORY_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/coordinator/core_story.h"
#include "tests/coordinator/fleet.h"

namespace hotbed {

class MembershipStory : public CoreStory {
 protected:
  // A table of `replicas` replicas in `shards` shards.
  void Create(const std::string& name, uint32_t replicas, uint32_t shards) {
    auto created = rig_.Create(Request(name, replicas, shards));
    ASSERT_TRUE(created.ok()) << created.status();
    fleet_.Run(300);
  }
  static v1::CreateTableRequest Request(const std::string& name, uint32_t replicas,
                                        uint32_t shards) {
    v1::CreateTableRequest request =
        CoreRig::Table(name, 10000);  // below 1 MiB: as many shards as asked
    request.set_shards(shards);
    if (replicas > 1) {
      request.mutable_spec()->set_durability(v1::DURABILITY_REPLICATED);
      request.mutable_spec()->set_replicas(replicas);
    }
    return request;
  }
  void Start(const std::vector<std::string>& names) {
    for (const std::string& name : names) fleet_.Start(name);
  }
  std::string Name(ServerId id) {
    for (const auto& [name, s] : fleet_.all()) {
      if (s.id == id) return name;
    }
    return "?";
  }
  // "s1 s2 +s3 e4" : the primary first, learners with a plus, and whether it is not active.
  std::string Line(const v1::ShardRecord& r) {
    std::string line = Name(r.primary().server());
    for (const v1::Member& m : r.members()) {
      if (m.server() != r.primary().server()) absl::StrAppend(&line, " ", Name(m.server()));
    }
    for (const v1::Member& m : r.learners()) absl::StrAppend(&line, " +", Name(m.server()));
    absl::StrAppend(&line, " e", r.epoch());
    return r.active() ? line : line + " waits";
  }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const v1::ShardRecord& r : Records()) lines.push_back(Line(r));
    return lines;
  }
  absl::StatusOr<v1::MoveShardsReply> Move(uint32_t index, const std::string& from,
                                           const std::string& to, bool dry_run = false,
                                           TableId table = 1) {
    v1::MoveShardsRequest request;
    v1::MoveShardsRequest::Move* move = request.add_moves();
    move->set_shard(ShardId{table, index}.packed());
    if (!from.empty()) move->set_from(fleet_.at(from).id);
    move->set_to(fleet_.at(to).id);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::MoveShardsReply>(request);
  }
  absl::StatusOr<v1::DrainServerReply> Drain(const std::string& name, bool undo = false,
                                             bool dry_run = false) {
    v1::DrainServerRequest request;
    request.set_server(name);
    request.set_undo(undo);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::DrainServerReply>(request);
  }
  v1::ControlMovesReply Control(v1::ControlMovesRequest::Action action, uint64_t number = 0) {
    v1::ControlMovesRequest request;
    request.set_action(action);
    request.set_number(number);
    auto reply = rig_.Call<v1::ControlMovesReply>(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::ControlMovesReply();
  }
  std::vector<std::string> Events(const std::string& kind) {
    std::vector<std::string> out;
    const v1::ListEventsReply listed = rig_.core->Events({});
    for (const v1::ClusterEvent& e : listed.events()) {
      if (e.kind() == kind) out.push_back(e.text());
    }
    return out;
  }
  uint64_t Revision() const { return rig_.store.revision; }

  Fleet fleet_{&rig_};
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_MEMBERSHIP_STORY_H_
