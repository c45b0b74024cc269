// Trainers of one group, "g", over a CoreRig: what its stories tell them to do.
#ifndef HOTBED_TESTS_COORDINATOR_TRAINER_STORY_H_
#define HOTBED_TESTS_COORDINATOR_TRAINER_STORY_H_

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/coordinator/core_rig.h"

namespace hotbed {

class TrainerStory : public testing::Test {
 protected:
  struct Life {
    SessionId session = 0;
    Incarnation incarnation = 0;
  };

  TrainerStory() {
    rig_.Pump();
    rig_.Tick(0);
    EXPECT_TRUE(rig_.Register("s1").ok());
  }

  void Open(const std::string& name) {
    v1::OpenSessionRequest request;
    request.set_name(name);
    const auto opened = rig_.Call<v1::OpenSessionReply>(request);
    ASSERT_TRUE(opened.ok()) << opened.status();
    lives_[name] = {opened->session(), opened->incarnation()};
  }
  v1::TrainRequest Request(const std::string& name, uint64_t ended = 0) {
    v1::TrainRequest request;
    request.set_group("g");
    request.set_name(name);
    request.set_session(lives_[name].session);
    request.set_incarnation(lives_[name].incarnation);
    request.set_ended_step(ended);
    return request;
  }
  CallerToken Join(const std::string& name) {
    v1::TrainRequest request = Request(name);
    request.set_kind(v1::TrainRequest::JOIN);
    request.set_wait_ms(10000);
    return rig_.Send(request);
  }
  // Ends a step of a synchronous table; `delivered`: it brought the commit before.
  CallerToken End(const std::string& name, uint64_t step, bool delivered = true) {
    v1::TrainRequest request = Request(name, step);
    request.set_wait_commit(step);
    request.set_wait_ms(30000);
    request.add_tables(7);
    if (delivered) request.set_delivered_step(step - 1);
    return rig_.Send(request);
  }
  std::optional<v1::TrainReply> Answer(CallerToken caller) {
    const auto it = rig_.replies.find(caller);
    if (it == rig_.replies.end()) return std::nullopt;
    if (!it->second.ok()) {
      error_ = it->second.status();
      return v1::TrainReply();
    }
    return std::get<v1::TrainReply>(*it->second);
  }
  void JoinNow(const std::string& name, uint64_t ended) {
    Open(name);
    const auto answer = Answer(Join(name));
    ASSERT_TRUE(answer.has_value()) << name;
    ASSERT_TRUE(answer->member()) << error_;
    ASSERT_EQ(answer->ended_step(), ended);
  }
  void Renew(const std::string& name, uint64_t ended) { rig_.Send(Request(name, ended)); }
  std::vector<SessionId> Sessions(const std::vector<std::string>& names) {
    std::vector<SessionId> sessions;
    for (const std::string& name : names) sessions.push_back(lives_[name].session);
    return sessions;
  }
  static std::vector<SessionId> Sessions(const v1::TrainReply& reply) {
    return {reply.commit().sessions().begin(), reply.commit().sessions().end()};
  }

  CoreRig rig_;
  std::map<std::string, Life> lives_;
  absl::Status error_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_TRAINER_STORY_H_
