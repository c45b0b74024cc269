// Rows that come and go: touches, admission, expiry and limits, over kills, restarts and small
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/random.h"
#include "row_math/position.h"
#include "server/shard/row_policy.h"
#include "server/shard/shard.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace row_life_test {

constexpr uint32_t kDim = 4;
constexpr uint32_t kShards = 2;

// SGD with rate 1 on rows of zeros: a row is minus the sum of the gradients that were applied.
TableSpec Living() {
  TableSpec table = TestTable(1, "living", 1000, kDim, OptimizerKind::kSgd);
  table.hashed = true;
  table.optimizer.learning_rate = 1.0f;
  table.optimizer.touches = true;
  table.initializer = {InitializerKind::kZero, 0, 0};
  return table;
}

std::vector<uint64_t> Ids(uint64_t first, uint64_t count) {
  std::vector<uint64_t> ids(count);
  for (uint64_t i = 0; i < count; ++i) ids[i] = (first + i) * 0x9e3779b97f4a7c15ull;
  return ids;
}

class RowLifeTest : public testing::Test {
 protected:
  ShardHostOptions Options(uint64_t hot_bytes = 0) {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.hot_bytes = hot_bytes;
    return options;
  }
  void Push(const std::vector<uint64_t>& ids, float value = 1.0f) {
    client_->Push(1, ++step_, ids, std::vector<float>(ids.size() * kDim, value));
  }
  void Begin(const TableSpec& table, uint64_t hot_bytes = 0) {
    ASSERT_TRUE(ValidateTableSpec(table).ok()) << ValidateTableSpec(table);
    server_ =
        std::make_unique<TestServer>(Options(hot_bytes), std::vector<TableSpec>{table}, kShards);
    server_->Start();
    client_ = std::make_unique<TestClient>(server_.get(), 7);
  }
  void KillAndStart() {
    server_->Kill();
    server_->Start();
  }
  std::vector<KnownTouches> Touches(const std::vector<uint64_t>& ids) {
    std::vector<KnownTouches> touches;
    for (const uint64_t id : ids) {
      const auto shard = server_->host()->Find(server_->ShardOf(1, id));
      const auto read = shard->row_sweep()->Read({&id, 1});
      EXPECT_TRUE(read.ok()) << read.status();
      touches.push_back(read.ok() ? read->front() : KnownTouches());
    }
    return touches;
  }
  uint64_t RowsThere(const std::vector<uint64_t>& ids) {
    const auto touches = Touches(ids);
    return std::count_if(touches.begin(), touches.end(),
                         [](const KnownTouches& row) { return row.found == KnownTouches::kRow; });
  }
  // Until the sweeper has left `rows` of the ids, or for a minute.
  uint64_t AwaitRows(const std::vector<uint64_t>& ids, uint64_t rows) {
    uint64_t there = RowsThere(ids);
    for (int i = 0; i < 6000 && there > rows; ++i, there = RowsThere(ids)) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return there;
  }
  // With the same shows and clicks for each id; a session of its own.
  void PushShown(const std::vector<uint64_t>& ids, float shows, float clicks, float value = 1.0f,
                 SessionId session = 0) {
    const uint64_t step = ++step_;
    auto push = server_->MakePush(session != 0 ? session : 1000 + step, 1, 1, ids,
                                  std::vector<float>(ids.size() * kDim, value));
    std::vector<std::vector<std::vector<float>>> rows(push->segments.size());
    for (size_t s = 0; s < push->segments.size(); ++s) {
      rows[s].assign(push->ids[s].size(), std::vector<float>(kDim, value));
      for (size_t i = 0; i < rows[s].size(); ++i) {
        rows[s][i].insert(rows[s][i].end(), {shows, clicks});
        push->rows[s][i] = reinterpret_cast<const uint8_t*>(rows[s][i].data());
      }
      push->segments[s].shows = true;
      push->segments[s].seq = step << 20 | 1;
      push->segments[s].open = true;
    }
    server_->Run(push.get());
    for (const PushSegment& segment : push->segments) {
      ASSERT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
    }
  }
  SweptRows WouldTake(const LifeParams& life) {
    SweptRows sum;
    for (uint32_t s = 0; s < kShards; ++s) {
      const auto swept =
          server_->host()->Find({1, s})->row_sweep()->DryRun(life, [] { return absl::OkStatus(); });
      EXPECT_TRUE(swept.ok()) << swept.status();
      if (!swept.ok()) continue;
      sum.rows += swept->rows;
      sum.expired += swept->expired;
      sum.evicted += swept->evicted;
    }
    return sum;
  }

  TempDir dir_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<TestClient> client_;
  uint64_t step_ = 0;
};

TEST_F(RowLifeTest, TouchesCountPushesAndSurviveAKill) {
  Begin(Living());
  const std::vector<uint64_t> ids = Ids(0, 30);
  Push(ids);
  client_->ResendLast();
  Push({ids[0], ids[1]});
  const uint32_t before_s = Touches({ids[0]})[0].touches.time_s;
  KillAndStart();
  Push({ids[0]});
  const std::vector<KnownTouches> rows = Touches({ids[0], ids[1], ids[2], 12345});
  EXPECT_EQ(rows[0].touches.count, 3u);
  EXPECT_EQ(rows[0].touches.step, 3u);
  EXPECT_GE(rows[0].touches.time_s, before_s);
  EXPECT_EQ(rows[1].touches.count, 2u);
  EXPECT_EQ(rows[1].touches.time_s, before_s) << "a replay takes the time from the log";
  EXPECT_EQ(rows[2].touches.count, 1u) << "a push that was sent again counts once";
  EXPECT_EQ(rows[3].found, KnownTouches::kNoRow);
  ASSERT_TRUE(server_->Stop().ok());
  server_->Start();
  EXPECT_EQ(Touches({ids[0]})[0].touches.count, 3u) << "from the spill tier";
}

// H1: gradients of rows that are absent or not admitted must not reach their neighbours.
TEST_F(RowLifeTest, RowsAreTrainedFromTheirNthTouchOn) {
  TableSpec table = Living();
  table.life.admission.after = 3;
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 300);
  const TestSeed seed(71);
  Random random(seed.value());
  std::map<uint64_t, std::vector<float>> pushed;
  for (int push = 0; push < 20; ++push) {
    std::vector<uint64_t> some;
    std::vector<float> gradients;
    for (const uint64_t id : ids) {
      if (random.Uniform(3) != 0) continue;
      some.push_back(id);
      pushed[id].push_back(static_cast<float>(1 + random.Uniform(1000)));
      gradients.insert(gradients.end(), kDim, pushed[id].back());
    }
    client_->Push(1, ++step_, some, gradients);
    if (push == 10) KillAndStart();
  }
  const auto pull = server_->MakePull(1, ids);
  server_->Run(pull.get());
  const std::vector<float> rows = server_->Pull(1, ids);
  const std::vector<KnownTouches> touches = Touches(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float>& gradients = pushed[ids[i]];
    float sum = 0;
    for (size_t k = 2; k < gradients.size(); ++k) sum -= gradients[k];
    EXPECT_EQ(rows[i * kDim], sum) << "id " << ids[i] << ", " << gradients.size() << " touches";
    EXPECT_EQ(touches[i].touches.count, gradients.size());
    EXPECT_EQ(touches[i].found, gradients.empty()       ? KnownTouches::kNoRow
                                : gradients.size() >= 3 ? KnownTouches::kRow
                                                        : KnownTouches::kCandidate);
  }
  for (size_t s = 0; s < pull->segments.size(); ++s) {
    for (size_t k = 0; k < pull->ids[s].size(); ++k) {
      EXPECT_EQ(pull->flags[s][k] & 1, pushed[pull->ids[s][k]].size() >= 3 ? 1 : 0);
    }
  }
}

// A filter with so much room that no id is admitted early.
TableSpec Filtered(uint32_t after) {
  TableSpec table = Living();
  table.life.admission.after = after;
  table.life.admission.by = AdmitBy::kBloom;
  table.life.admission.ids = 100'000;
  table.life.admission.false_positives = 1e-6f;
  return table;
}

// As with exact counts, but no row is there before its n-th touch: neither in memory nor on disk.
TEST_F(RowLifeTest, AFilterCountsTouchesOfIdsWithoutRows) {
  constexpr uint32_t kAfter = 4;
  Begin(Filtered(kAfter), /*hot_bytes=*/1 << 20);
  const std::vector<uint64_t> ids = Ids(0, 300);
  const TestSeed seed(72);
  Random random(seed.value());
  std::map<uint64_t, std::vector<float>> pushed;
  for (int push = 0; push < 24; ++push) {
    std::vector<uint64_t> some;
    std::vector<float> gradients;
    for (const uint64_t id : ids) {
      if (random.Uniform(4) != 0) continue;
      some.push_back(id);
      pushed[id].push_back(static_cast<float>(1 + random.Uniform(1000)));
      gradients.insert(gradients.end(), kDim, pushed[id].back());
    }
    client_->Push(1, ++step_, some, gradients);
    if (push % 8 == 2) KillAndStart();
    if (push % 8 == 5) {  // the counts come back with the rows' meta, and the log has the rest
      for (uint32_t s = 0; s < kShards; ++s) {
        ASSERT_TRUE(server_->host()->Find({1, s})->WriteBack().ok());
      }
    }
    if (push == 15) {
      ASSERT_TRUE(server_->Stop().ok());
      server_->Start();
    }
  }
  const std::vector<float> rows = server_->Pull(1, ids);
  const std::vector<KnownTouches> touches = Touches(ids);
  uint64_t there = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float>& gradients = pushed[ids[i]];
    float sum = 0;
    for (size_t k = kAfter - 1; k < gradients.size(); ++k) sum -= gradients[k];
    EXPECT_EQ(rows[i * kDim], sum) << "id " << ids[i] << ", " << gradients.size() << " touches";
    const bool admitted = gradients.size() >= kAfter;
    there += admitted ? 1 : 0;
    EXPECT_EQ(touches[i].found, admitted ? KnownTouches::kRow : KnownTouches::kNoRow);
    EXPECT_EQ(touches[i].touches.count, admitted ? gradients.size() : 0u);
  }
  LifeParams counts;
  counts.ttl_steps = 1000;
  for (uint32_t s = 0; s < kShards; ++s) {  // a sweep passes over rows that are just being written
    ASSERT_TRUE(server_->host()->Find({1, s})->WriteBack().ok());
  }
  EXPECT_EQ(WouldTake(counts).rows, there) << "in memory and in the spill tier";
}

TEST_F(RowLifeTest, AFilteredRowBeginsWithItsFirstValueAndAssignmentsMakeRows) {
  TableSpec table = Filtered(2);
  table.life.admission.zeros = true;
  table.initializer = {InitializerKind::kConstant, 5, 0};
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 2);
  Push(ids);
  EXPECT_EQ(server_->Pull(1, ids)[0], 0.0f) << "not admitted";
  uint64_t held = 0;
  for (uint32_t s = 0; s < kShards; ++s) {
    const StoreStats stats = server_->host()->Find({1, s})->Status().store;
    held += stats.rows_held;
    EXPECT_GT(stats.filter_bytes, 0u);
    EXPECT_LE(stats.filter_used, stats.filter_counters);
  }
  EXPECT_EQ(held, 2u);
  Push({ids[0]});
  EXPECT_EQ(server_->Pull(1, ids), (std::vector<float>{4, 4, 4, 4, 0, 0, 0, 0}));
}

// The parts of a cut shard and the merged one go on with the counts, each with those of its ids.
TEST_F(RowLifeTest, CountsOfAFilterAreCutAndMergedWithTheShard) {
  Begin(Filtered(3));
  const std::vector<uint64_t> ids = Ids(0, 200);
  Push(ids);
  const ShardRange range = server_->record({1, 0}).range;
  const ShardId part = server_->Cut({1, 0}, range.first + (range.limit - range.first) / 2);
  client_->LearnCut({1, 0}, part);
  Push(ids);
  EXPECT_EQ(RowsThere(ids), 0u);
  KillAndStart();
  auto ready = server_->host()->PrepareMerge({1, 0}, part);
  while (absl::IsUnavailable(ready.status())) {  // it was cut just now
    absl::SleepFor(absl::Milliseconds(10));
    ready = server_->host()->PrepareMerge({1, 0}, part);
  }
  ASSERT_TRUE(ready.ok()) << ready.status();
  server_->Merge({1, 0}, *ready, part);
  ASSERT_TRUE(server_->host()->ApplyAssignment({}, server_->records(), {}).ok());
  Push({ids[0], ids[1]});
  KillAndStart();
  Push(ids);
  EXPECT_EQ(RowsThere(ids), ids.size());
  const std::vector<float> rows = server_->Pull(1, ids);
  EXPECT_EQ(rows[0], -2.0f);
  EXPECT_EQ(rows[2 * kDim], -1.0f);
}

TEST_F(RowLifeTest, CandidatesReadAsZerosWhereTheTableSaysSo) {
  TableSpec table = Living();
  table.life.admission.after = 2;
  table.life.admission.zeros = true;
  table.initializer = {InitializerKind::kConstant, 5, 0};
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 3);
  EXPECT_EQ(server_->Pull(1, ids)[0], 0.0f) << "never pushed";
  Push({ids[0], ids[1]});
  EXPECT_EQ(server_->Pull(1, ids)[0], 0.0f) << "a candidate";
  Push({ids[0]});
  KillAndStart();
  const std::vector<float> rows = server_->Pull(1, ids);
  EXPECT_EQ(rows[0], 4.0f) << "training begins with the first value";
  EXPECT_EQ(rows[kDim], 0.0f);
}

TEST_F(RowLifeTest, ChanceMakesItsPartOfTheRowsAndTheSameAgain) {
  TableSpec table = Living();
  table.life.admission.probability = 0.25f;
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 2000);
  Push(ids);
  const std::vector<float> before = server_->Pull(1, ids);
  const uint64_t there = RowsThere(ids);
  EXPECT_GT(there, 350u);
  EXPECT_LT(there, 650u);
  KillAndStart();
  EXPECT_EQ(server_->Pull(1, ids), before);
  EXPECT_EQ(RowsThere(ids), there);
  Push(ids);
  EXPECT_GT(RowsThere(ids), there) << "each touch has its chance";
}

TEST_F(RowLifeTest, RowsExpireWhenTheyWereNotTouchedForSoManySteps) {
  TableSpec table = Living();
  table.life.ttl_steps = 10;
  Begin(table);
  const std::vector<uint64_t> old = Ids(0, 400), kept = Ids(1000, 300);
  Push(old);
  Push(kept);
  for (int i = 0; i < 12; ++i) Push(kept);
  EXPECT_EQ(AwaitRows(old, 0), 0u);
  EXPECT_EQ(RowsThere(kept), 300u);
  KillAndStart();
  EXPECT_EQ(RowsThere(old), 0u) << "the deletions are in the log";
  Push(old, 3.0f);
  EXPECT_EQ(server_->Pull(1, {old[0]})[0], -3.0f) << "it begins at its first value";
  EXPECT_EQ(server_->Pull(1, {kept[0]})[0], -13.0f);
}

// Most rows are in the spill tier alone.
TEST_F(RowLifeTest, RowsOfTheSpillTierExpireToo) {
  TableSpec table = Living();
  table.life.ttl_steps = 20;
  Begin(table, /*hot_bytes=*/256 << 10);
  const std::vector<uint64_t> old = Ids(0, 30'000), kept = Ids(100'000, 100);
  for (size_t at = 0; at < old.size(); at += 3000) {
    Push({old.begin() + at, old.begin() + at + 3000});
  }
  for (int i = 0; i < 31; ++i) Push(kept);
  EXPECT_EQ(AwaitRows({old.begin(), old.begin() + 300}, 0), 0u);
  EXPECT_EQ(AwaitRows({old.end() - 300, old.end()}, 0), 0u);
  EXPECT_EQ(RowsThere(kept), 100u);
  EXPECT_EQ(server_->Pull(1, {kept[0]})[0], -31.0f);
}

TEST_F(RowLifeTest, ADryRunSaysHowManyRowsGo) {
  TableSpec table = Living();
  table.life.ttl_s = 1'000'000;
  Begin(table);
  Push(Ids(0, 500));
  for (int i = 0; i < 9; ++i) Push(Ids(0, 100));
  SweptRows swept = WouldTake(table.life);
  EXPECT_EQ(swept.rows, 500u);
  EXPECT_EQ(swept.expired, 0u);
  swept = WouldTake({.ttl_steps = 8, .rows_max = 90, .evict_by = EvictBy::kLfu});
  EXPECT_EQ(swept.rows, 500u);
  EXPECT_EQ(swept.expired, 400u);
  EXPECT_GE(swept.evicted, 10u);
  EXPECT_LE(swept.evicted, 30u);
  EXPECT_EQ(RowsThere(Ids(0, 500)), 500u);
}

TEST_F(RowLifeTest, ALimitTakesTheRowsThatWereTouchedMostRarely) {
  TableSpec table = Living();
  table.life.rows_max = 1000;
  table.life.evict_by = EvictBy::kLfu;
  Begin(table);
  const std::vector<uint64_t> often = Ids(0, 500), once = Ids(1000, 3000);
  for (int i = 0; i < 5; ++i) Push(often);
  for (size_t at = 0; at < once.size(); at += 500) {
    Push({once.begin() + at, once.begin() + at + 500});
  }
  std::vector<uint64_t> all = often;
  all.insert(all.end(), once.begin(), once.end());
  EXPECT_LE(AwaitRows(all, 1000), 1000u);
  EXPECT_EQ(RowsThere(often), 500u);
  EXPECT_EQ(server_->Pull(1, {often[0]})[0], -5.0f);
  KillAndStart();
  EXPECT_LE(RowsThere(all), 1000u);
  Push(Ids(10'000, 1000));
  all = Ids(10'000, 1000);
  all.insert(all.end(), often.begin(), often.end());
  EXPECT_LE(AwaitRows(all, 1000), 1000u) << "rows are counted again after a restart";
}

TEST_F(RowLifeTest, ALimitOfBytesTakesTheRowsTouchedLongestAgo) {
  TableSpec table = Living();
  const uint64_t row_bytes = table.weight_bytes_per_row() + table.state_bytes_per_row();
  table.life.bytes_max = 600 * row_bytes;
  Begin(table);
  const std::vector<uint64_t> first = Ids(0, 500), later = Ids(1000, 500);
  Push(first);
  Push(first);
  Push(later);
  std::vector<uint64_t> all = first;
  all.insert(all.end(), later.begin(), later.end());
  EXPECT_LE(AwaitRows(all, 600), 600u);
  EXPECT_EQ(RowsThere(later), 500u);
}

TableSpec Shown() {
  TableSpec table = Living();
  table.optimizer.shows.kept = true;
  return table;
}

TEST_F(RowLifeTest, ShowsAndClicksAddUpAndSurviveAKill) {
  Begin(Shown());
  const std::vector<uint64_t> ids = Ids(0, 100), others = Ids(50, 100);
  PushShown(ids, 3, 1);
  PushShown(others, 0.5f, 0.25f);
  Push(ids);
  for (int life = 0; life < 2; ++life) {
    const auto rows = Touches({ids[0], ids[60], others[99]});
    EXPECT_EQ(rows[0].shows.shows, 3.0f);
    EXPECT_EQ(rows[0].shows.clicks, 1.0f);
    EXPECT_EQ(rows[0].touches.count, 2u);
    EXPECT_EQ(rows[1].shows.shows, 3.5f);
    EXPECT_EQ(rows[1].shows.clicks, 1.25f);
    EXPECT_EQ(rows[2].shows.clicks, 0.25f);
    EXPECT_EQ(server_->Pull(1, {ids[60]})[0], -3.0f) << "gradients are what they were";
    KillAndStart();
  }
}

TEST_F(RowLifeTest, ARowThatIsAssignedKeepsItsShows) {
  TableSpec table = Shown();
  table.optimizer.kind = OptimizerKind::kAdam;
  table.life.admission.after = 2;
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 10);
  PushShown(ids, 3, 1);
  auto push = server_->MakePush(90, 1, 1, ids, std::vector<float>(ids.size() * kDim, 5.0f));
  for (PushSegment& segment : push->segments) {
    segment.assign = true;
    segment.seq = 1 << 20 | 1;
    segment.open = true;
  }
  server_->Run(push.get());
  PushShown(ids, 2, 0);
  EXPECT_EQ(Touches({ids[3]})[0].shows.shows, 5.0f);
  EXPECT_EQ(Touches({ids[3]})[0].shows.clicks, 1.0f);
}

TEST_F(RowLifeTest, ALimitTakesTheRowsOfTheLowestScore) {
  TableSpec table = Shown();
  table.life = {.rows_max = 1000, .evict_by = EvictBy::kScore};
  table.life.score = {.show = 0.1f, .click = 1.0f};
  Begin(table);
  const std::vector<uint64_t> clicked = Ids(0, 500), shown = Ids(1000, 3000);
  PushShown(clicked, 2, 1);
  for (size_t at = 0; at < shown.size(); at += 500) {
    PushShown({shown.begin() + at, shown.begin() + at + 500}, 9, 0);
  }
  std::vector<uint64_t> all = clicked;
  all.insert(all.end(), shown.begin(), shown.end());
  EXPECT_LE(AwaitRows(all, 1000), 1000u);
  EXPECT_EQ(RowsThere(clicked), 500u);
}

// The table changes while it is used: rows that would have stayed go, and then they stay.
TEST_F(RowLifeTest, PoliciesChangeAtOnceAndStayChanged) {
  Begin(Shown());
  const std::vector<uint64_t> ids = Ids(0, 2000), clicked = Ids(0, 400);
  PushShown(ids, 1, 0);
  PushShown(clicked, 1, 1);
  TableChange change;
  change.at_step = 1;
  change.has_life = true;
  change.life.score.least = 0.5f;
  EXPECT_EQ(WouldTake(change.life).expired, 1600u);
  EXPECT_EQ(RowsThere(ids), 2000u);
  server_->Alter(1, change);
  EXPECT_EQ(AwaitRows(ids, 400), 400u);
  EXPECT_EQ(RowsThere(clicked), 400u);
  change.life = {.rows_max = 200};
  server_->Alter(1, change);
  EXPECT_LE(AwaitRows(ids, 200), 200u);
  change.life = {};
  server_->Alter(1, change);
  KillAndStart();
  PushShown(Ids(10'000, 1000), 0, 0);
  EXPECT_EQ(WouldTake(server_->host()->Find({1, 0})->row_sweep()->life()).evicted, 0u);
  EXPECT_EQ(RowsThere(Ids(10'000, 1000)), 1000u);
}

TEST_F(RowLifeTest, ShowsThatDoNotFitAreRefusedByName) {
  Begin(Living());
  const auto refusal = [&](float shows) {
    auto push = server_->MakePush(90 + ++step_, 1, 1, {7}, std::vector<float>(kDim, 1.0f));
    std::vector<float> row(kDim, 1.0f);
    row.insert(row.end(), {shows, 0});
    push->rows[0][0] = reinterpret_cast<const uint8_t*>(row.data());
    push->segments[0].shows = true;
    push->segments[0].seq = step_ << 20 | 1;
    push->segments[0].open = true;
    server_->Run(push.get());
    EXPECT_EQ(push->segments[0].result.code, SegmentCode::kInvalidArgument);
    return push->segments[0].result.detail;
  };
  EXPECT_THAT(refusal(1), testing::HasSubstr("the table keeps no shows and clicks"));
  server_->Kill();
  TempDir other;
  ShardHostOptions options = Options();
  options.data_dir = other.path();
  server_ = std::make_unique<TestServer>(options, std::vector<TableSpec>{Shown()}, kShards);
  server_->Start();
  EXPECT_THAT(refusal(-1), testing::HasSubstr("has -1 shows and 0 clicks; allowed: finite"));
  EXPECT_THAT(refusal(NAN), testing::HasSubstr("allowed: finite numbers, 0 or more"));
  server_.reset();
}

// Steps of two trainers are summed before they are applied; shows and clicks are, too.
TEST_F(RowLifeTest, StagedShowsAreAddedWithTheirStep) {
  TableSpec table = Shown();
  table.consistency = Consistency::kSync;
  table.gradient_reduction = GradientReduction::kMean;
  Begin(table);
  const std::vector<uint64_t> ids = Ids(0, 20);
  PushShown(ids, 3, 1, 1.0f, 21);
  --step_;
  PushShown(ids, 4, 0, 3.0f, 22);
  EXPECT_EQ(Touches({ids[0]})[0].found, KnownTouches::kNoRow) << "staged";
  KillAndStart();
  std::vector<uint64_t> sessions = {21, 22};
  for (const ShardRecord& record : server_->records()) {
    TestPush commit;
    PushSegment& segment = commit.segments.emplace_back();
    const auto shard = server_->host()->Find(record.shard);
    commit.shards = shard;
    segment.shard = shard.get();
    segment.shard_id = record.shard;
    segment.epoch = record.epoch;
    segment.commit_step = step_;
    segment.ids = sessions.data();
    segment.count = 2;
    server_->Run(&commit);
    EXPECT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
  }
  const auto rows = Touches({ids[0], ids[19]});
  EXPECT_EQ(rows[0].shows.shows, 7.0f);
  EXPECT_EQ(rows[1].shows.clicks, 1.0f);
  EXPECT_EQ(rows[0].touches.count, 1u);
  EXPECT_EQ(server_->Pull(1, {ids[0]})[0], -2.0f) << "the mean of 1 and 3";
}

// Rows fade by whole periods, in one step or in many.
TEST(RowPolicyTest, ScoresFade) {
  TableSpec table = Shown();
  table.optimizer.shows.decay = 0.5f;
  table.optimizer.shows.period_s = 100;
  table.life.score = {.show = 0.25f, .click = 2.0f, .least = 3.0f};
  const RowPolicy policy(table);
  const RowRecord row = {{1, 150, 1}, {8, 2}};
  EXPECT_EQ(policy.ScoreOf(row, {199, 1}), 5.5f) << "6 shows without a click, 2 clicks";
  EXPECT_EQ(policy.ScoreOf(row, {200, 1}), 2.75f);
  EXPECT_EQ(policy.ScoreOf(row, {400, 1}), 5.5f / 8);
  EXPECT_FALSE(policy.Expired(row, {199, 1}));
  EXPECT_TRUE(policy.Expired(row, {200, 1}));
  EXPECT_FALSE(policy.Expired({{0, 0, 0}, {0, 0}}, {200, 1})) << "imported";
  uint8_t stored[kShowBytes];
  StoreShows({8, 2}, stored);
  AddShows(table.optimizer.shows, {1, 1}, 150, 250, stored);
  AddShows(table.optimizer.shows, {}, 250, 330, stored);
  EXPECT_EQ(LoadShows(stored).shows, 2.5f);
  EXPECT_EQ(LoadShows(stored).clicks, 1.0f);
  AddShows(table.optimizer.shows, {}, 330, 150, stored);
  EXPECT_EQ(LoadShows(stored).shows, 2.5f) << "a clock that went back";
}

TEST(RowPolicyTest, RowsExpireAfterTheirTimeAndNotBeforeTheyWereTouched) {
  TableSpec table = Living();
  table.life.ttl_s = 60;
  const RowPolicy policy(table);
  EXPECT_FALSE(policy.Expired({1, 1000, 5}, {1060, 5}));
  EXPECT_TRUE(policy.Expired({1, 1000, 5}, {1061, 5}));
  EXPECT_FALSE(policy.Expired({0, 0, 0}, {1061, 5})) << "imported, and not touched since";
  EXPECT_FALSE(policy.Expired({1, 2000, 5}, {1061, 5})) << "by a clock that was ahead";
}

TEST(RowPolicyTest, KeysOrderRows) {
  TableSpec table = Living();
  const float small[kDim] = {0.1f, 0, 0, 0}, large[kDim] = {-3, 0, 4, 0};
  const auto key = [&](const RowTouches& touches, const float* weights) {
    return RowPolicy(table).KeyOf({touches, {}}, reinterpret_cast<const uint8_t*>(weights), {});
  };
  EXPECT_LT(key({9, 10, 1}, large), key({1, 11, 1}, small));
  EXPECT_LT(key({9, 10, 1}, large), key({1, 10, 2}, small));
  table.life.evict_by = EvictBy::kLfu;
  EXPECT_LT(key({1, 11, 9}, large), key({2, 10, 1}, small));
  table.life.evict_by = EvictBy::kNorm;
  EXPECT_LT(key({9, 11, 9}, small), key({1, 10, 1}, large));
}

TEST(RowPolicyTest, ASampleSaysWhichKeysAreTheLowest) {
  const TestSeed seed(72);
  KeySample sample(seed.value());
  for (uint64_t key = 0; key < 1'000'000; ++key) sample.Offer(Mix64(key) % 1'000'000);
  EXPECT_NEAR(static_cast<double>(sample.Threshold(100'000)), 100'000, 15'000);
}

TEST(RowPolicyTest, PoliciesAreRefusedByName) {
  const auto refused = [](void (*change)(TableSpec*)) {
    TableSpec table = Living();
    change(&table);
    return std::string(ValidateTableSpec(table).message());
  };
  EXPECT_THAT(refused([](TableSpec* t) { t->hashed = false; }),
              testing::HasSubstr("optimizer.touches is true, allowed: false for a bounded table"));
  EXPECT_THAT(refused([](TableSpec* t) {
                t->optimizer.touches = false;
                t->life.ttl_s = 5;
              }),
              testing::HasSubstr("life.ttl_s is 5, allowed: 0 without touches"));
  EXPECT_THAT(refused([](TableSpec* t) { t->life.evict_by = EvictBy::kLfu; }),
              testing::HasSubstr("life.evict_by is lfu"));
  EXPECT_THAT(refused([](TableSpec* t) { t->life.admission.by = AdmitBy::kBloom; }),
              testing::HasSubstr("life.admit_by is bloom, allowed: exact with admit_after"));
  EXPECT_THAT(refused([](TableSpec* t) { t->life.admission.probability = 0; }),
              testing::HasSubstr("life.admit_probability is 0, allowed: (0, 1]"));
  EXPECT_THAT(refused([](TableSpec* t) { t->column_slices = 2; }),
              testing::HasSubstr("column_slices is 2, allowed: 1 with touches"));
}

// Touches change nothing else of a row, on each of the ways of an update.
TEST(RowTouchesTest, RowsAreTheSameWithAndWithoutTouches) {
  struct Kind {
    OptimizerKind kind;
    uint32_t dim;
    WeightType weights;
    bool row_bias_correction;
  };
  for (const Kind& kind : {Kind{OptimizerKind::kSgd, 64, WeightType::kFp32, false},
                           Kind{OptimizerKind::kRowwiseAdagrad, 32, WeightType::kFp32, false},
                           Kind{OptimizerKind::kAdam, 64, WeightType::kFp32, true},
                           Kind{OptimizerKind::kAdagrad, 7, WeightType::kFp32, false},
                           Kind{OptimizerKind::kRowwiseAdagrad, 20, WeightType::kFp16, false}}) {
    std::vector<TableSpec> tables;
    for (TableId id : {1u, 2u}) {
      TableSpec table = TestTable(id, "same", 100, kind.dim, kind.kind);
      table.name = absl::StrCat("same-", id);
      table.hashed = true;
      table.weight_type = kind.weights;
      table.optimizer.row_bias_correction = kind.row_bias_correction;
      table.optimizer.touches = id == 2;
      tables.push_back(table);
    }
    const TempDir dir;
    ShardHostOptions options;
    options.data_dir = dir.path();
    options.host_bytes = 64ull << 20;
    TestServer server(options, tables, 1);
    server.Start();
    TestClient client(&server, 7);
    const std::vector<uint64_t> ids = Ids(0, 50);
    Random random(71);
    for (uint64_t step = 1; step <= 5; ++step) {
      std::vector<float> gradients(ids.size() * kind.dim);
      for (float& g : gradients) g = static_cast<float>(random.Uniform(2000)) / 1000.0f - 1.0f;
      for (TableId id : {1u, 2u}) client.Push(id, step, ids, gradients);
    }
    EXPECT_EQ(server.Pull(1, ids), server.Pull(2, ids)) << static_cast<int>(kind.kind);
  }
}

}  // namespace row_life_test
}  // namespace hotbed
