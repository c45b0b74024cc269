// Stories of shards that are cut in two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "common/tables/shard_lanes.h"
#include "planner/coordinator/membership/busy_shards.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"
#include "tests/coordinator/membership_story.h"

namespace hotbed {
namespace cut_story_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CutStory : public MembershipStory {
 protected:
  absl::StatusOr<v1::CutShardReply> Ask(uint32_t shard, uint64_t at, bool dry_run = false) {
    v1::CutShardRequest request;
    request.set_shard(ShardId{1, shard}.packed());
    request.set_at(at);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::CutShardReply>(request);
  }
  // As the server of the shard's primary would ask.
  v1::CommitCutRequest CommitOf(const v1::ShardCut& cut) {
    const ShardRecord& record = rig_.core->state().shards().at(cut.shard());
    v1::CommitCutRequest request;
    *request.mutable_cut() = cut;
    request.set_epoch(record.epoch);
    request.set_server(record.primary.server);
    request.set_incarnation(record.primary.incarnation);
    return request;
  }
  // The only one, as the first server hears of it.
  v1::ShardCut AskedNow() {
    const auto news = rig_.core->News(1, 1, NewsKnown());
    if (!news.has_value() || news->cuts_size() != 1) {
      ADD_FAILURE() << "one cut should be asked for";
      return v1::ShardCut();
    }
    return news->cuts(0);
  }
  // "0: [0, 5) e2" for each shard.
  std::vector<std::string> Ranges() const {
    std::vector<std::string> out;
    for (const auto& [packed, r] : rig_.core->state().shards()) {
      out.push_back(absl::StrCat(r.shard.index, ": [", r.range.first, ", ", r.range.limit, ") e",
                                 r.epoch, r.active ? "" : " waits"));
    }
    return out;
  }
};

TEST_F(CutStory, BothPartsBeginTheNextEpochWithTheMembersOfTheWhole) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  const std::vector<std::string> before = Ranges();
  ASSERT_EQ(before.size(), 1u);
  const ShardRecord whole = rig_.core->state().shards().begin()->second;
  auto planned = Ask(0, 0, /*dry_run=*/true);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->cut().at(), whole.range.limit / 2);
  EXPECT_EQ(Ranges(), before);
  auto asked = Ask(0, 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_STATUS(Ask(0, 4), kAlreadyExists, "asked for already");
  const v1::CommitCutRequest request = CommitOf(asked->cut());
  auto cut = rig_.Call<v1::CommitCutReply>(request);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->records_size(), 2);
  EXPECT_THAT(Ranges(), ElementsAre("0: [0, 3) e2 waits",
                                    absl::StrCat("1: [3, ", whole.range.limit, ") e2 waits")));
  for (const auto& [packed, part] : rig_.core->state().shards()) {
    EXPECT_EQ(part.members, whole.members);
    EXPECT_EQ(part.base, whole.members);
    EXPECT_EQ(part.primary, whole.primary);
  }
  auto again = rig_.Call<v1::CommitCutReply>(request);
  ASSERT_TRUE(again.ok()) << "its answer was lost: " << again.status();
  EXPECT_EQ(again->SerializeAsString(), cut->SerializeAsString());
  EXPECT_THAT(Events("shard_cut"), ElementsAre(HasSubstr("t/0 [0, ")));
  fleet_.Run(1000);
  EXPECT_THAT(Ranges(),
              ElementsAre("0: [0, 3) e2", absl::StrCat("1: [3, ", whole.range.limit, ") e2")));
}

// There is nobody to bring to the end of its log.
TEST_F(CutStory, PartsOfAShardWithOneMemberAreActiveFromTheCommitOn) {
  Start({"s1"});
  Create("t", 1, 1);
  const ShardRecord whole = rig_.core->state().shards().begin()->second;
  auto asked = Ask(0, 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(asked->cut())).ok());
  EXPECT_THAT(Ranges(),
              ElementsAre("0: [0, 3) e2", absl::StrCat("1: [3, ", whole.range.limit, ") e2")));
  for (const auto& [packed, part] : rig_.core->state().shards()) {
    EXPECT_EQ(part.members, whole.members);
    EXPECT_EQ(part.primary, whole.primary);
  }
}

TEST_F(CutStory, NeighboursAreMergedAndNumbersAreNotUsedAgain) {
  Start({"s1"});
  v1::CreateTableRequest table = Request("t", 1, 1);
  table.mutable_spec()->set_durability(v1::DURABILITY_LOG);
  ASSERT_TRUE(rig_.Create(table).ok());
  fleet_.Run(300);
  const uint64_t limit = rig_.core->state().shards().begin()->second.range.limit;
  const auto split = [this](uint32_t shard, uint64_t at) {
    auto asked = Ask(shard, at);
    ASSERT_TRUE(asked.ok()) << asked.status();
    ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(asked->cut())).ok());
  };
  split(0, 3);
  v1::CutShardRequest merge;
  merge.set_shard(ShardId{1, 1}.packed());
  merge.set_merge_with(ShardId{1, 0}.packed());
  auto asked = rig_.Call<v1::CutShardReply>(merge);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_STATUS(Ask(1, 4), kAlreadyExists, "asked for already");
  v1::CommitCutRequest request = CommitOf(asked->cut());
  request.set_epoch_with(request.epoch());
  request.mutable_end()->set_lsn(7);
  request.mutable_end_with()->set_lsn(9);
  v1::CommitCutRequest late = request;
  late.set_epoch_with(1);
  EXPECT_FALSE(rig_.Call<v1::CommitCutReply>(late).ok());  // and it is asked for anew
  EXPECT_FALSE(rig_.Call<v1::CommitCutReply>(request).ok());
  *request.mutable_cut() = AskedNow();
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(request).ok());
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(request).ok());  // the answer was lost
  EXPECT_THAT(Ranges(), ElementsAre(absl::StrCat("0: [0, ", limit, ") e4")));
  const ShardRecord merged = rig_.core->state().shards().begin()->second;
  EXPECT_EQ(merged.merge.base, (LogEnd{3, 10}));
  ASSERT_EQ(merged.lanes.size(), 2u);
  EXPECT_EQ(merged.lanes[1].index, 1u);
  EXPECT_EQ(merged.lanes[1].first, 3u);
  EXPECT_NE(merged.lanes[0].tag, merged.lanes[1].tag);
  EXPECT_STATUS(rig_.Call<v1::CutShardReply>(merge), kNotFound, "does not exist");
  split(0, 3);  // between the lanes
  const auto& shards = rig_.core->state().shards();
  ASSERT_EQ(shards.size(), 2u);
  const ShardRecord& upper = std::prev(shards.end())->second;
  EXPECT_GT(upper.shard.index, 1u);
  ASSERT_EQ(upper.lanes.size(), 1u);
  EXPECT_EQ(upper.lanes[0].index, 1u);
}

TEST_F(CutStory, ACoordinatorThatRestartsGoesOnWithTheCutsThatWereAskedFor) {
  Start({"s1"});
  Create("t", 1, 2);
  auto asked = Ask(0, 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  int64_t unix_ms = 1'800'000'000'000;
  const auto restart = [&] {
    rig_.Start();
    rig_.core->SetUnixMs(unix_ms += 1000);
    rig_.Pump();
    fleet_.Run(300);
  };
  restart();
  const v1::ShardCut again = AskedNow();
  EXPECT_EQ(again.at(), 3u);
  EXPECT_STATUS(Ask(0, 4), kAlreadyExists, "asked for already");
  EXPECT_STATUS(rig_.Call<v1::CommitCutReply>(CommitOf(asked->cut())), kFailedPrecondition,
                "not asked for any more");
  restart();
  const v1::ShardCut third = AskedNow();
  EXPECT_GT(third.number(), again.number()) << "the late request ended the cut of its number alone";
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(third)).ok());
  restart();
  EXPECT_THAT(rig_.core->state().cuts(), ::testing::IsEmpty());
  ASSERT_TRUE(Ask(0, 1).ok());
  restart();
  fleet_.Run(62'000);
  EXPECT_THAT(Events("cut_given_up"), ElementsAre(HasSubstr("t/0 at 1, asked for: not made")));
  EXPECT_THAT(rig_.core->state().cuts(), ::testing::IsEmpty());
}

// Their counts travel as one message when the merged shard moves.
TEST_F(CutStory, NeighboursWithTooLargeAFilterTogetherAreNotMerged) {
  Start({"s1"});
  v1::CreateTableRequest table = Request("t", 1, 4);
  v1::TableSpec& spec = *table.mutable_spec();
  spec.set_durability(v1::DURABILITY_LOG);
  spec.set_hashed(true);
  spec.mutable_optimizer()->set_touches(true);
  spec.mutable_life()->set_admit_after(2);
  spec.mutable_life()->set_admit_by(v1::ADMIT_BY_BLOOM);
  spec.mutable_life()->set_admit_ids(40'000'000);
  const auto created = rig_.Create(table);
  ASSERT_TRUE(created.ok()) << created.status();
  fleet_.Run(300);
  ASSERT_EQ(rig_.core->state().shards().size(), 4u);
  v1::CutShardRequest merge;
  merge.set_shard(ShardId{1, 1}.packed());
  merge.set_merge_with(ShardId{1, 0}.packed());
  EXPECT_STATUS(rig_.Call<v1::CutShardReply>(merge), kFailedPrecondition,
                "would have a filter of touches of");
}

// A learner of the upper part has a replica of no shard from then on, and has to be told why.
TEST(MergedShardTest, IsShownToServersThatHeldTheOtherPartAlone) {
  ClusterState state;
  v1::TableSpec table;
  table.set_id(1);
  table.set_name("t");
  const auto part = [](uint32_t index, uint64_t first, uint64_t limit) {
    ShardRecord record;
    record.shard = {1, index};
    record.range = {first, limit, 0, 4};
    record.epoch = 5;
    record.primary = {1, 1};
    record.members = record.base = {record.primary};
    record.active = true;
    return record;
  };
  const ShardRecord lower = part(0, 2, 5);
  ShardRecord upper = part(1, 5, 10);
  upper.learners = {{3, 1}};
  const auto put = [](const ShardRecord& record) {
    return Op{Op::Kind::kPut, keys::Shard(record.shard), StoredRecord(record)};
  };
  state.Apply({put(lower), put(upper), {Op::Kind::kPut, keys::Table(1), table.SerializeAsString()}},
              2);
  const uint64_t before = state.plan_revision();
  const ShardRecord merged = MergedRecord(lower, upper, {5, 7}, {5, 9});
  state.Apply({put(merged), {Op::Kind::kDelete, keys::Shard(upper.shard), ""}}, 3);
  const v1::ClusterMap map = BuildServerMap(state, 3, before);
  ASSERT_TRUE(map.delta());
  ASSERT_EQ(map.shards_size(), 1);
  EXPECT_EQ(map.shards(0).shard(), lower.shard.packed());
  EXPECT_EQ(map.shards(0).range_limit(), 10u);
  // It was away, and that shard has ended in its turn.
  ShardRecord below = part(2, 0, 2);
  below.epoch = 7;
  state.Apply({put(below)}, 4);
  const ShardRecord again = MergedRecord(below, merged, {7, 1}, {7, 11});
  state.Apply({put(again), {Op::Kind::kDelete, keys::Shard(merged.shard), ""}}, 5);
  const v1::ClusterMap later = BuildServerMap(state, 3, before);
  ASSERT_EQ(later.shards_size(), 1);
  EXPECT_EQ(later.shards(0).shard(), again.shard.packed());
}

TEST_F(CutStory, WhatCannotBeCutIsRefused) {
  Start({"s1"});
  Create("t", 1, 1);
  const uint64_t limit = rig_.core->state().shards().begin()->second.range.limit;
  EXPECT_STATUS(Ask(7, 1), kNotFound, "does not exist");
  EXPECT_STATUS(Ask(0, limit), kInvalidArgument, "allowed: 1 to");
  auto asked = Ask(0, 1);
  ASSERT_TRUE(asked.ok()) << asked.status();
  v1::CommitCutRequest late = CommitOf(asked->cut());
  late.set_epoch(late.epoch() + 1);
  EXPECT_STATUS(rig_.Call<v1::CommitCutReply>(late), kFailedPrecondition, "asks for its cut");
  EXPECT_THAT(Events("cut_refused"), ElementsAre());
  late.set_epoch(late.epoch() - 1);
  EXPECT_STATUS(rig_.Call<v1::CommitCutReply>(late), kFailedPrecondition, "not asked for any more");
  EXPECT_THAT(Events("cut_refused"), ElementsAre(HasSubstr("t/0 at 1, asked for: shard t/0: its")));
  const v1::ShardCut again = AskedNow();
  EXPECT_EQ(again.at(), 1u);
  EXPECT_GT(again.number(), asked->cut().number());
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(again)).ok());
  fleet_.Run(1000);
  EXPECT_STATUS(Ask(0, 0), kFailedPrecondition, "a single row");
}

TEST_F(CutStory, ACutThatDoesNotComeAboutIsGivenUp) {
  Start({"s1"});
  Create("t", 1, 2);
  auto asked = Ask(0, 1);
  ASSERT_TRUE(asked.ok()) << asked.status();
  fleet_.Run(59'000);
  EXPECT_STATUS(Ask(0, 2), kAlreadyExists, "asked for already");
  fleet_.Run(2'000);
  EXPECT_THAT(Events("cut_given_up"), ElementsAre(HasSubstr("t/0 at 1, asked for: not made")));
  EXPECT_STATUS(rig_.Call<v1::CommitCutReply>(CommitOf(asked->cut())), kFailedPrecondition,
                "not asked for any more");
  asked = Ask(0, 2);
  EXPECT_TRUE(asked.ok()) << asked.status();
}

// The coordinator asks for the cut by itself; one that does not come about is not tried again soon.
TEST_F(CutStory, LargeShardsOfHashedTablesAreSplit) {
  Start({"s1"});
  Create("bounded", 1, 1);
  v1::CreateTableRequest request = Request("hashed", 1, 1);
  request.mutable_spec()->set_hashed(true);
  request.mutable_spec()->set_rows(0);
  ASSERT_TRUE(rig_.Create(request).ok());
  fleet_.Run(300);
  for (const uint32_t table : {1u, 2u}) {
    v1::ShardLoad* const shard = fleet_.at("s1").load.add_shards();
    shard->set_shard(ShardId{table, 0}.packed());
    shard->set_bytes(500ull << 20);
  }
  fleet_.Run(45'000);
  EXPECT_EQ(rig_.core->News(1, 1, NewsKnown())->cuts_size(), 0) << "below the limit";
  for (v1::ShardLoad& shard : *fleet_.at("s1").load.mutable_shards()) shard.set_bytes(600ull << 20);
  fleet_.Run(25'000);
  const v1::ShardCut asked = AskedNow();
  EXPECT_EQ(asked.shard(), (ShardId{2, 0}.packed())) << "bounded tables are not split";
  EXPECT_THAT(asked.reason(), HasSubstr("600 MiB, above 512 MiB"));
  fleet_.Run(70'000);
  EXPECT_THAT(Events("cut_given_up"), ElementsAre(HasSubstr("hashed/0")));
  fleet_.Run(480'000);
  EXPECT_EQ(rig_.core->News(1, 1, NewsKnown())->cuts_size(), 0)
      << "ten minutes later at the earliest";
  fleet_.Run(80'000);
  const v1::ShardCut again = AskedNow();
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(again)).ok());
  fleet_.at("s1").load.mutable_shards(1)->set_bytes(300ull << 20);
  fleet_.Run(45'000);
  EXPECT_EQ(rig_.core->News(1, 1, NewsKnown())->cuts_size(), 0);
  // The lower part grows: it is another shard than the one that was tried.
  fleet_.at("s1").load.mutable_shards(1)->set_bytes(600ull << 20);
  fleet_.Run(25'000);
  EXPECT_EQ(AskedNow().shard(), (ShardId{2, 0}.packed()));
}

class BusyStory : public CutStory {
 protected:
  void SetUp() override {
    Start({"s1"});
    Create("bounded", 1, 1);
    v1::CreateTableRequest request = Request("hashed", 1, 1);
    request.mutable_spec()->set_hashed(true);
    request.mutable_spec()->set_rows(0);
    ASSERT_TRUE(rig_.Create(request).ok());
    fleet_.Run(300);
    for (const uint32_t table : {1u, 2u}) {
      fleet_.at("s1").load.add_shards()->set_shard(ShardId{table, 0}.packed());
    }
  }
  // Each shard that is reported serves so many rows per second: pulls of the first, pushes of the
  // others. Cuts that are asked for are made at once, and only the lower parts are reported.
  void Serve(int seconds, uint64_t rows_per_s) {
    for (int second = 0; second < seconds; ++second) {
      for (v1::ShardLoad& shard : *fleet_.at("s1").load.mutable_shards()) {
        shard.set_rows_pulled_total(shard.rows_pulled_total() + rows_per_s / 2);
        shard.set_rows_pushed_total(shard.rows_pushed_total() + rows_per_s / 2);
      }
      fleet_.Run(1000);
      ++now_s_;
      const auto news = rig_.core->News(1, 1, NewsKnown());
      if (!news.has_value()) continue;
      for (const v1::ShardCut& cut : news->cuts()) {
        cut_at_s_.push_back(now_s_);
        ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(CommitOf(cut)).ok());
      }
    }
  }

  int now_s_ = 0;
  std::vector<int> cut_at_s_;
};

TEST_F(BusyStory, ABurstSplitsNothing) {
  for (int i = 0; i < 6; ++i) {
    Serve(50, 3'000'000);
    Serve(20, 10'000);
  }
  Serve(120, 990'000);
  EXPECT_THAT(Events("cut_asked"), ElementsAre());
}

TEST_F(BusyStory, ALastingLoadSplitsAShardOnce) {
  Serve(100, 1'500'000);
  ASSERT_EQ(cut_at_s_.size(), 1u);
  EXPECT_GE(cut_at_s_[0], 60);
  EXPECT_THAT(Events("cut_asked"),
              ElementsAre(HasSubstr("hashed/0 at 4096, 1500000 rows per second over 60 s, above "
                                    "1000000")))
      << "and bounded tables are not split";
  EXPECT_THAT(Events("shard_cut"), ElementsAre(HasSubstr("1500000 rows per second")));
  Serve(600, 750'000);
  EXPECT_EQ(cut_at_s_.size(), 1u);
  Serve(100, 1'200'000);
  EXPECT_EQ(cut_at_s_.size(), 2u) << "a part is split like any other shard";
}

// One row has the load, so that a part has all of it after each split.
TEST_F(BusyStory, SplitsThatDoNotHelpBecomeRare) {
  Serve(1500, 2'000'000);
  ASSERT_EQ(cut_at_s_.size(), 4u);
  EXPECT_GE(cut_at_s_[1] - cut_at_s_[0], 180);
  EXPECT_GE(cut_at_s_[2] - cut_at_s_[1], 360);
  EXPECT_GE(cut_at_s_[3] - cut_at_s_[2], 720);
}

// Load halves with each split, and is still too much.
TEST_F(BusyStory, SplitsThatHelpGoOn) {
  Serve(100, 8'000'000);
  ASSERT_EQ(cut_at_s_.size(), 1u);
  Serve(150, 4'000'000);
  EXPECT_EQ(cut_at_s_.size(), 1u) << "within three minutes";
  Serve(100, 4'000'000);
  EXPECT_EQ(cut_at_s_.size(), 2u);
  Serve(250, 2'000'000);
  EXPECT_EQ(cut_at_s_.size(), 3u);
  Serve(600, 900'000);
  EXPECT_EQ(cut_at_s_.size(), 3u);
}

// Ten shards of one table, of which neighbours with at most 64 MiB together are merged.
class SmallStory : public CutStory {
 protected:
  void Begin(uint64_t merge_below_bytes) {
    rig_.merge_below_bytes = merge_below_bytes;
    rig_.Start();
    rig_.Pump();
    Start({"s1"});
    v1::CreateTableRequest request = Request("hashed", 1, 10);
    request.mutable_spec()->set_hashed(true);
    request.mutable_spec()->set_rows(0);
    request.mutable_spec()->set_durability(v1::DURABILITY_LOG);
    ASSERT_TRUE(rig_.Create(request).ok());
    fleet_.Run(300);
    for (uint32_t i = 0; i < 10; ++i) {
      v1::ShardLoad* const shard = fleet_.at("s1").load.add_shards();
      shard->set_shard(ShardId{1, i}.packed());
      shard->set_bytes(20ull << 20);
    }
  }
  // Merges that are asked for are made at once.
  void Serve(int seconds, uint64_t rows_per_s) {
    for (int second = 0; second < seconds; ++second) {
      for (v1::ShardLoad& shard : *fleet_.at("s1").load.mutable_shards()) {
        shard.set_rows_pulled_total(shard.rows_pulled_total() + rows_per_s);
      }
      fleet_.Run(1000);
      const auto news = rig_.core->News(1, 1, NewsKnown());
      if (!news.has_value()) continue;
      for (const v1::ShardCut& cut : news->cuts()) {
        v1::CommitCutRequest request = CommitOf(cut);
        request.set_epoch_with(rig_.core->state().shards().at(cut.with()).epoch);
        ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(request).ok());
      }
    }
  }
};

TEST_F(SmallStory, IdleNeighboursAreMergedDownToEightShards) {
  Begin(64ull << 20);
  fleet_.at("s1").load.mutable_shards(0)->set_bytes(50ull << 20);
  Serve(50, 1000);
  EXPECT_THAT(Events("merge_asked"), ElementsAre()) << "less than a minute";
  Serve(60, 1000);
  EXPECT_THAT(Events("shards_merged"),
              ElementsAre(HasSubstr("hashed/1 with hashed/2 into"),
                          HasSubstr("20 and 20 MiB, together at most 64 MiB")));
  Serve(300, 1000);
  EXPECT_EQ(rig_.core->state().shards().size(), 8u);
}

TEST_F(SmallStory, BusyNeighboursAreNotMerged) {
  Begin(64ull << 20);
  Serve(200, 200'000);  // two of them: two fifths of the load from which a shard is split
  EXPECT_THAT(Events("merge_asked"), ElementsAre());
}

TEST_F(SmallStory, PartsOfWhatRebalancingSplitsStayForADay) {
  Begin(0);
  BusyShards busy(1'000'000);
  for (int second = 0; second < 80; ++second) {
    Serve(1, 1000);
    busy.Tick(rig_.now_ns, rig_.core->state(), rig_.core->leases());
  }
  const auto merges_after = [&](int64_t hours) {
    return busy
        .SmallNeighbours(rig_.now_ns + hours * 3'600'000'000'000, rig_.core->state(), 64ull << 20)
        .size();
  };
  EXPECT_EQ(merges_after(0), 2u);
  for (const auto& [packed, record] : rig_.core->state().shards()) {
    busy.NoteSplit(rig_.now_ns, record);
  }
  EXPECT_EQ(merges_after(0), 0u);
  EXPECT_EQ(merges_after(23), 0u);
  EXPECT_EQ(merges_after(25), 2u);
}

TEST_F(SmallStory, NothingIsMergedUnlessAskedFor) {
  Begin(0);
  Serve(200, 0);
  EXPECT_THAT(Events("merge_asked"), ElementsAre());
}

}  // namespace cut_story_test
}  // namespace hotbed
