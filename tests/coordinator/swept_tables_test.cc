// Rows that servers have deleted by policies, as events.
#include "planner/coordinator/state/swept_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/coordinator/state/event_log.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace swept_tables_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SweptStory : public CoreStory {
 protected:
  void Hear(ServerId server, Incarnation incarnation, uint64_t expired, uint64_t evicted) {
    v1::HeartbeatRequest request;
    request.set_server(server);
    request.set_incarnation(incarnation);
    v1::TableLoad& load = *request.mutable_load()->add_tables();
    load.set_table(1);
    load.set_rows_expired_total(expired);
    load.set_rows_evicted_total(evicted);
    const auto reply = rig_.Call<v1::HeartbeatReply>(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_TRUE(reply->lease_held());
  }
  std::vector<std::string> Swept() {
    rig_.Pump();
    std::vector<std::string> texts;
    const v1::ListEventsReply told = ListEvents(rig_.core->state(), v1::ListEventsRequest());
    for (const v1::ClusterEvent& event : told.events()) {
      if (event.kind() == "rows_swept") texts.push_back(event.text());
    }
    return texts;
  }
};

TEST_F(SweptStory, OneEventPerTableAndMinute) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  Hear(1, 1, 0, 0);
  Hear(2, 1, 500, 0);  // before this coordinator heard of it
  rig_.Tick(1'000);
  EXPECT_THAT(Swept(), ElementsAre());
  Hear(1, 1, 70, 0);
  Hear(2, 1, 500, 30);
  rig_.Tick(1'000);
  EXPECT_THAT(Swept(), ElementsAre("table t: 70 rows expired and 30 were evicted"));
  for (int s = 0; s < 58; ++s) {
    Hear(1, 1, 71 + s, 0);
    Hear(2, 1, 500, 30);
    rig_.Tick(1'000);
  }
  EXPECT_EQ(Swept().size(), 1u);
  for (int s = 0; s < 3; ++s) {
    Hear(1, 1, 128, 0);
    Hear(2, 1, 500, 30);
    rig_.Tick(1'000);
  }
  ASSERT_EQ(Swept().size(), 2u);
  EXPECT_THAT(Swept()[1], HasSubstr("table t: 58 rows expired and 0 were evicted in 60 s"));
}

// A process that begins again counts from 0, and a shard that leaves takes its counts along.
TEST_F(SweptStory, CountsThatFallAreNoRows) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  Hear(1, 1, 1'000, 0);
  ASSERT_TRUE(rig_.Register("s1", 1).ok());
  Hear(1, 2, 40, 0);
  Hear(1, 2, 10, 0);
  Hear(1, 2, 12, 0);
  rig_.Tick(1'000);
  EXPECT_THAT(Swept(), ElementsAre("table t: 42 rows expired and 0 were evicted"));
}

}  // namespace swept_tables_test
}  // namespace hotbed
