#include "planner/coordinator/shell/checkpoint_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {
namespace checkpoint_scheduler_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Request = v1::ScheduleCheckpointsRequest;
using Saved = CheckpointScheduler::Saved;

// A coordinator's core that the test and the scheduler's thread use in turn, and saves of nothing.
class CheckpointSchedulerTest : public ::testing::Test {
 protected:
  CheckpointSchedulerTest() { rig_.Pump(); }

  absl::StatusOr<v1::ScheduleCheckpointsReply> Ask(Request::Action action,
                                                   const std::string& place = "", uint32_t keep = 0,
                                                   int64_t every_ms = 3'600'000)
      ABSL_LOCKS_EXCLUDED(mu_) {
    Request request;
    request.set_action(action);
    if (action == Request::SET) {
      request.mutable_schedule()->set_place(place);
      request.mutable_schedule()->set_every_ms(every_ms);
      request.mutable_schedule()->set_keep(keep);
    }
    absl::MutexLock lock(&mu_);
    rig_.Tick(1);
    return rig_.Call<v1::ScheduleCheckpointsReply>(request);
  }
  v1::ScheduleCheckpointsReply Shown() { return *Ask(Request::SHOW); }
  std::vector<std::string> Events() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> texts;
    const v1::ListEventsReply listed = rig_.core->Events({});
    for (const v1::ClusterEvent& event : listed.events()) {
      if (event.kind() == "checkpoint") texts.push_back(event.text());
    }
    return texts;
  }

  CheckpointScheduler::Hands Hands() {
    CheckpointScheduler::Hands hands;
    hands.schedule = [this]() -> absl::StatusOr<v1::ScheduleCheckpointsReply> {
      absl::MutexLock lock(&mu_);
      if (!leads_) return absl::UnavailableError("another one leads");
      return ShowSchedule(rig_.core->state(), UnixMs());
    };
    hands.note = [this](ScheduledSave save) -> absl::StatusOr<v1::ScheduleCheckpointsReply> {
      absl::MutexLock lock(&mu_);
      if (!leads_) return absl::UnavailableError("another one leads");
      rig_.Tick(1);
      return rig_.Call<v1::ScheduleCheckpointsReply>(save);
    };
    hands.save = [this](const v1::CheckpointSchedule& schedule, const std::function<bool()>& stop) {
      return save_(schedule, stop);
    };
    hands.fold = [this](const v1::CheckpointSchedule&, const std::string& path,
                        const std::function<bool()>& stop) { return fold_(path, stop); };
    hands.prune = [this](const v1::CheckpointSchedule& schedule) -> absl::StatusOr<uint64_t> {
      absl::MutexLock lock(&mu_);
      kept_.push_back(schedule.keep());
      return prunes_;
    };
    hands.unix_ms = [this] {
      absl::MutexLock lock(&mu_);
      return UnixMs();
    };
    return hands;
  }
  // Runs a scheduler until `done`.
  void Run(const std::function<bool()>& done) {
    const CheckpointScheduler scheduler(Hands());
    while (!done()) absl::SleepFor(absl::Milliseconds(5));
  }
  int64_t UnixMs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return 1'700'000'000'000 + rig_.now_ns / 1'000'000;
  }
  std::vector<uint32_t> Kept() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return kept_;
  }
  void SetLeads(bool leads) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    leads_ = leads;
  }
  void SetPrunes(absl::StatusOr<uint64_t> prunes) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    prunes_ = std::move(prunes);
  }

  std::function<absl::StatusOr<Saved>(const v1::CheckpointSchedule&, const std::function<bool()>&)>
      save_ = [](const v1::CheckpointSchedule& schedule,
                 const std::function<bool()>&) -> absl::StatusOr<Saved> {
    return Saved{schedule.place() + "/one"};
  };
  std::function<absl::StatusOr<std::string>(const std::string&, const std::function<bool()>&)>
      fold_ =
          [](const std::string& path, const std::function<bool()>&) { return path + "-folded"; };
  absl::Mutex mu_;
  CoreRig rig_ ABSL_GUARDED_BY(mu_);
  bool leads_ ABSL_GUARDED_BY(mu_) = true;
  absl::StatusOr<uint64_t> prunes_ ABSL_GUARDED_BY(mu_) = 2;
  std::vector<uint32_t> kept_ ABSL_GUARDED_BY(mu_);  // what each deletion was to keep
};

TEST_F(CheckpointSchedulerTest, SavesAndDeletesByWhatTheScheduleIsThen) {
  ASSERT_TRUE(Ask(Request::SET, "/c", 5).ok());
  save_ = [this](const v1::CheckpointSchedule& schedule,
                 const std::function<bool()>& stop) -> absl::StatusOr<Saved> {
    EXPECT_EQ(schedule.keep(), 5u);
    EXPECT_TRUE(Ask(Request::SET, "/c", 7).ok());
    EXPECT_FALSE(stop());
    return Saved{schedule.place() + "/one"};
  };
  Run([this] { return Events().size() == 4; });
  EXPECT_THAT(Kept(), ElementsAre(7));
  const v1::CheckpointSchedule schedule = Shown().schedule();
  EXPECT_EQ(schedule.checkpoint(), "/c/one");
  EXPECT_EQ(schedule.saved_unix_ms(), schedule.begun_unix_ms());
  EXPECT_GT(schedule.ended_unix_ms(), schedule.begun_unix_ms());
  EXPECT_EQ(schedule.failures(), 0u);
  EXPECT_EQ(Shown().next_unix_ms(), schedule.begun_unix_ms() + 3'600'000);
  EXPECT_THAT(Events(),
              ElementsAre("a save into /c every 3600 s, 5 are kept",
                          "a save into /c every 3600 s, 7 are kept", HasSubstr("saved /c/one in "),
                          "deleted 2 old checkpoints in /c"));
}

TEST_F(CheckpointSchedulerTest, ADeletionThatFailsIsNoSaveThatFailed) {
  ASSERT_TRUE(Ask(Request::SET, "/c", 5, 1000).ok());
  SetPrunes(absl::UnavailableError("the disk is away"));
  Run([this] { return !Shown().schedule().prune_error().empty(); });
  v1::CheckpointSchedule schedule = Shown().schedule();
  EXPECT_EQ(schedule.prune_error(), "the disk is away");
  EXPECT_EQ(schedule.checkpoint(), "/c/one");
  EXPECT_EQ(schedule.error(), "");
  EXPECT_EQ(schedule.failures(), 0u);
  EXPECT_EQ(Shown().next_unix_ms(), schedule.begun_unix_ms() + 1000) << "no wait as for a failure";
  SetPrunes(0);
  Run([this] {
    {
      absl::MutexLock lock(&mu_);
      rig_.Tick(300);  // until the next save is due
    }
    return Shown().schedule().prune_error().empty();
  });
  EXPECT_GE(Kept().size(), 2u);
}

TEST_F(CheckpointSchedulerTest, ASaveThatFailsDeletesNothing) {
  ASSERT_TRUE(Ask(Request::SET, "/c", 5).ok());
  save_ = [](const auto&, const auto&) -> absl::StatusOr<Saved> {
    return absl::ResourceExhaustedError("the disk is full");
  };
  Run([this] { return Shown().schedule().failures() == 1; });
  const v1::CheckpointSchedule schedule = Shown().schedule();
  EXPECT_EQ(schedule.error(), "the disk is full");
  EXPECT_EQ(schedule.checkpoint(), "");
  EXPECT_EQ(Shown().next_unix_ms(), schedule.ended_unix_ms() + 60'000);
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_EQ(Events().back(), "the scheduled save failed: the disk is full");
}

TEST_F(CheckpointSchedulerTest, OneThatLeadsNoMoreDeletesNothing) {
  ASSERT_TRUE(Ask(Request::SET, "/c", 5).ok());
  bool saved = false;
  save_ = [&](const v1::CheckpointSchedule& schedule,
              const std::function<bool()>&) -> absl::StatusOr<Saved> {
    SetLeads(false);
    saved = true;
    return Saved{schedule.place() + "/one"};
  };
  Run([&] {
    absl::MutexLock lock(&mu_);
    return saved;
  });
  EXPECT_THAT(Kept(), IsEmpty());
  SetLeads(true);
  // For the next one this is a save that broke off.
  EXPECT_EQ(Shown().schedule().ended_unix_ms(), 0);
  EXPECT_EQ(Shown().next_unix_ms(), Shown().schedule().begun_unix_ms() + 60'000);
}

TEST_F(CheckpointSchedulerTest, StopBreaksASaveOffAndSoDoesAnotherPlace) {
  for (const Request::Action action : {Request::STOP, Request::SET}) {
    ASSERT_TRUE(Ask(Request::SET, "/c", 5).ok());
    bool broken_off = false;
    save_ = [&](const v1::CheckpointSchedule& schedule,
                const std::function<bool()>& stop) -> absl::StatusOr<Saved> {
      if (schedule.place() != "/c") return Saved{schedule.place() + "/two"};
      EXPECT_FALSE(stop());
      EXPECT_TRUE(Ask(action, "/d").ok());
      EXPECT_TRUE(stop());
      absl::MutexLock lock(&mu_);
      broken_off = true;
      return absl::CancelledError("it was broken off");
    };
    Run([&] {
      absl::MutexLock lock(&mu_);
      return broken_off;
    });
    EXPECT_EQ(Shown().has_schedule(), action == Request::SET);
    EXPECT_EQ(Shown().schedule().failures(), 0u);
  }
}

TEST_F(CheckpointSchedulerTest, FoldsLongSeriesAndDeletesNothingMeanwhile) {
  ASSERT_TRUE(Ask(Request::SET, "/c", 5, 1000).ok());
  uint32_t saves = 0;
  save_ = [&](const v1::CheckpointSchedule&,
              const std::function<bool()>&) -> absl::StatusOr<Saved> {
    absl::MutexLock lock(&mu_);
    rig_.Tick(1000);
    ++saves;
    return Saved{absl::StrCat("/c/", saves), saves};
  };
  fold_ = [&](const std::string& path,
              const std::function<bool()>& stop) -> absl::StatusOr<std::string> {
    if (path != "/c/4") return path + "-folded";
    // Saves go on, and break it off no more than that.
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        if (saves >= 6) break;
      }
      EXPECT_FALSE(stop());
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(Kept().size(), 4u) << "what is folded must stay";
    EXPECT_TRUE(Ask(Request::STOP).ok());
    EXPECT_TRUE(stop());
    EXPECT_TRUE(Ask(Request::SET, "/c", 5).ok());
    return path + "-folded";
  };
  Run([&] {
    const std::vector<std::string> events = Events();
    return std::find(events.begin(), events.end(), "folded a series into /c/4-folded") !=
           events.end();
  });
  EXPECT_EQ(Shown().schedule().fold_error(), "");
}

TEST_F(CheckpointSchedulerTest, PlacesAreOneFormAndBadOnesAreNamed) {
  EXPECT_EQ(Ask(Request::SET, "/a//b/../c/")->schedule().place(), "/a/c");
  EXPECT_EQ(Ask(Request::SET, "s3://models/ctr/")->schedule().place(), "s3://models/ctr");
  for (const char* bad : {"", "ctr", "s3://a", "s3://models//x", "http://models"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Ask(Request::SET, bad).status())) << bad;
  }
  EXPECT_THAT(std::string(Ask(Request::SET, "/c", 5, 7).status().message()),
              HasSubstr("--every is 7ms; allowed: 1s to 366 days"));
  EXPECT_THAT(std::string(Ask(Request::SET, "/c", 100'001).status().message()),
              HasSubstr("--keep is 100001; allowed: 0..100000"));
  EXPECT_EQ(Shown().schedule().place(), "s3://models/ctr") << "a refused one changes nothing";
}

}  // namespace checkpoint_scheduler_test
}  // namespace hotbed
