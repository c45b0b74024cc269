// Rows kept in the client. The twin is a count of pushes per row: column 0 counts this client's own
// pushes, column 1 those of another client. So each row tells which pushes it has, and a row that
// is older than allowed, or lacks an own push, is found by its value.
#include "client/pull/row_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace row_cache_test {

using testing::HasSubstr;

constexpr uint32_t kDim = 4;
constexpr uint64_t kRows = 300;
constexpr uint32_t kShards = 6;

std::unique_ptr<Client> Open(const FakeCluster& cluster, const std::string& name,
                             ClientOptions options = {}) {
  options.deadline = absl::Seconds(20);
  options.session_name = name;
  auto client = Client::Connect(cluster.target(), options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

ClientOptions Caching(int steps, absl::Duration age = absl::InfiniteDuration()) {
  ClientOptions options;
  options.row_cache_bytes = RowCache::kBytesMin;
  options.row_cache_steps = steps;
  options.row_cache_age = age;
  return options;
}

// --- random pulls and pushes of two clients, while shards move

struct Scenario {
  int steps_kept = 3;           // as the cache has it
  uint64_t steps_allowed = 3;   // as the check has it
  bool own_by_another = false;  // the cache does not hear of the "own" pushes
  uint64_t seed = 1;
};

struct Violations {
  uint64_t too_old = 0;      // a push of the other client is missing
  uint64_t own_missing = 0;  // an own push that was acknowledged before the pull began
  uint64_t backwards = 0;    // an earlier pull had a later version
  uint64_t made_up = 0;      // more pushes than there were
};

class Twin {
 public:
  explicit Twin(const Scenario& scenario) : scenario_(scenario), random_(scenario.seed) {
    table_ = cluster_.AddTable("t", kRows, kDim, kShards);
    reader_ = Open(cluster_, "reader", Caching(scenario.steps_kept));
    other_ = Open(cluster_, "other");
    if (scenario.own_by_another) own_ = Open(cluster_, "own");
    cluster_.set_delay([] {
      thread_local Random random(reinterpret_cast<uintptr_t>(&random));
      if (random.OneIn(3)) absl::SleepFor(absl::Microseconds(random.Uniform(300)));
    });
    cluster_.set_pull_script([this](int, const PullAsk&) -> std::optional<v1::SegmentReply> {
      if (++pulls_ % 29 != 0) return std::nullopt;
      v1::SegmentReply refusal;
      refusal.set_code(v1::UNAVAILABLE);
      return refusal;
    });
  }

  Violations Run(uint64_t steps) {
    for (step_ = 1; step_ <= steps; ++step_) {
      floors_.push_back(others_);
      for (uint64_t n = random_.Uniform(4); n > 0; --n) Pull();
      if (random_.OneIn(4)) Move();
      if (random_.OneIn(2)) PushOfOther();
      if (random_.OneIn(2)) PushOwn();
      if (random_.OneIn(3)) FinishPush();
      while (pulls_in_flight_.size() > random_.Uniform(5)) FinishPull();
      while (pushes_in_flight_.size() > 3) FinishPush();
    }
    while (!pulls_in_flight_.empty()) FinishPull();
    while (!pushes_in_flight_.empty()) FinishPush();
    return found_;
  }
  ClientStats Stats() const { return reader_->Stats(); }

 private:
  using Counts = std::vector<float>;
  struct Reading {
    std::vector<uint64_t> ids;
    std::vector<float> rows;
    bool lookup = false;
    RowType wire_type = RowType::kFp32;
    Counts own_least, others_least, seen_own, seen_others;
    Future<absl::Status> done;
  };
  struct Writing {
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
    Future<PushResult> done;
  };

  // A few rows are in nearly every batch.
  std::vector<uint64_t> Draw() {
    std::vector<uint64_t> ids;
    for (uint64_t n = 1 + random_.Uniform(20); n > 0; --n) {
      ids.push_back(random_.Uniform(random_.OneIn(3) ? kRows : 12) * 23 % kRows);
    }
    return ids;
  }
  std::vector<uint64_t> DrawDistinct() {
    std::vector<uint64_t> ids = Draw();
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  static const Table* TableOf(Client* client) { return *client->OpenTable("t"); }
  static Future<PushResult> Push(Client* client, uint64_t step, int column, Writing* push) {
    push->gradients.assign(push->ids.size() * kDim, 0);
    for (size_t i = 0; i < push->ids.size(); ++i) push->gradients[i * kDim + column] = -1;
    const PushFeature feature{TableOf(client), push->ids, push->gradients.data()};
    return client->Push(step, {&feature, 1});
  }

  void Pull() {
    Reading& pull = pulls_in_flight_.emplace_back();
    pull.ids = Draw();
    pull.rows.assign(pull.ids.size() * kDim, -1);
    pull.lookup = random_.OneIn(5);
    if (random_.OneIn(4)) pull.wire_type = RowType::kFp16;
    pull.own_least = own_answered_;
    pull.seen_own = seen_own_;
    pull.seen_others = seen_others_;
    // A row that is used in step s was pulled in step s - k or later.
    pull.others_least =
        floors_[step_ > scenario_.steps_allowed ? step_ - 1 - scenario_.steps_allowed : 0];
    PullOptions options;
    options.step = step_;
    options.wire_type = &pull.wire_type;
    options.row_cache = !random_.OneIn(8);
    if (!options.row_cache) pull.others_least = others_;
    const PullFeature feature{TableOf(reader_.get()), pull.ids, pull.rows.data()};
    pull.done = pull.lookup ? reader_->Lookup({&feature, 1}, options)
                            : reader_->Pull({&feature, 1}, options);
  }

  void FinishPull() {
    Reading pull = std::move(pulls_in_flight_.front());
    pulls_in_flight_.pop_front();
    const absl::Status status = pull.done.Wait();
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < pull.ids.size(); ++i) {
      const uint64_t id = pull.ids[i];
      const float own = pull.rows[i * kDim];
      const float others = pull.rows[i * kDim + 1];
      found_.too_old += others < pull.others_least[id] ? 1 : 0;
      found_.made_up += others > others_[id] || own > own_begun_[id] ? 1 : 0;
      if (pull.lookup) continue;  // promises no more
      found_.own_missing += own < pull.own_least[id] ? 1 : 0;
      found_.backwards += own < pull.seen_own[id] || others < pull.seen_others[id] ? 1 : 0;
      seen_own_[id] = std::max(seen_own_[id], own);
      seen_others_[id] = std::max(seen_others_[id], others);
    }
  }

  void PushOwn() {
    Writing& push = pushes_in_flight_.emplace_back();
    push.ids = DrawDistinct();
    for (const uint64_t id : push.ids) ++own_begun_[id];
    push.done = Push(own_ != nullptr ? own_.get() : reader_.get(), step_, 0, &push);
  }
  void FinishPush() {
    if (pushes_in_flight_.empty()) return;
    Writing push = std::move(pushes_in_flight_.front());
    pushes_in_flight_.pop_front();
    const PushResult result = push.done.Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
    for (const uint64_t id : push.ids) ++own_answered_[id];
  }
  void PushOfOther() {
    Writing push;
    push.ids = DrawDistinct();
    const PushResult result = Push(other_.get(), step_, 1, &push).Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
    for (const uint64_t id : push.ids) ++others_[id];
  }
  void Move() {
    cluster_.Move({table_, static_cast<uint32_t>(random_.Uniform(kShards))},
                  static_cast<int>(random_.Uniform(3)), /*announce=*/random_.OneIn(2));
  }

  const Scenario scenario_;
  Random random_;
  FakeCluster cluster_{3};
  uint32_t table_ = 0;
  std::unique_ptr<Client> reader_, other_, own_;
  std::atomic<uint64_t> pulls_{0};

  uint64_t step_ = 0;
  Counts own_begun_ = Counts(kRows), own_answered_ = Counts(kRows), others_ = Counts(kRows);
  Counts seen_own_ = Counts(kRows), seen_others_ = Counts(kRows);
  std::vector<Counts> floors_;  // others_ at the beginning of each step
  std::deque<Reading> pulls_in_flight_;
  std::deque<Writing> pushes_in_flight_;
  Violations found_;
};

TEST(RowCacheTwinTest, NoRowIsOlderThanAllowedAndOwnPushesAreSeen) {
  const TestSeed seed(20261127);
  for (uint64_t round = 0; round < 3; ++round) {
    Twin twin({.steps_kept = static_cast<int>(round * 2),
               .steps_allowed = round * 2,
               .seed = seed.value() + round});
    const Violations found = twin.Run(250);
    EXPECT_EQ(found.too_old, 0);
    EXPECT_EQ(found.own_missing, 0);
    EXPECT_EQ(found.backwards, 0);
    EXPECT_EQ(found.made_up, 0);
    if (round > 0) EXPECT_GT(twin.Stats().row_cache_hits, 0);
  }
}

TEST(RowCacheTwinTest, TheCheckFindsRowsThatAreKeptForTooLong) {
  const TestSeed seed(1);
  Twin twin({.steps_kept = 6, .steps_allowed = 3, .seed = seed.value()});
  const Violations found = twin.Run(250);
  EXPECT_GT(found.too_old, 0);
  EXPECT_EQ(found.own_missing, 0);
}

TEST(RowCacheTwinTest, TheCheckFindsOwnPushesThatAreMissing) {
  const TestSeed seed(1);
  Twin twin({.own_by_another = true, .seed = seed.value()});
  const Violations found = twin.Run(250);
  EXPECT_GT(found.own_missing, 0);
  EXPECT_EQ(found.too_old, 0);
}

// --- one rule at a time

class RowCacheTest : public testing::Test {
 protected:
  void Connect(const ClientOptions& options, uint32_t rows = kRows, uint32_t dim = kDim) {
    table_ = cluster_.AddTable("t", rows, dim, kShards);
    client_ = Open(cluster_, "row-cache-test", options);
    t_ = *client_->OpenTable("t");
  }
  // The first element of each row.
  std::vector<float> Pull(const std::vector<uint64_t>& ids, PullOptions options = {},
                          const Table* table = nullptr) {
    if (table == nullptr) table = t_;
    rows_.assign(ids.size() * table->dim(), -1);
    const PullFeature feature{table, ids, rows_.data()};
    const absl::Status status = client_->Pull({&feature, 1}, options).Wait();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float> first;
    for (size_t i = 0; i < ids.size(); ++i) first.push_back(rows_[i * table->dim()]);
    return first;
  }
  static PullOptions Step(uint64_t step) {
    PullOptions options;
    options.step = step;
    return options;
  }
  void Push(Client* client, uint64_t step, const std::vector<uint64_t>& ids) {
    const Table* const table = *client->OpenTable("t");
    const std::vector<float> gradients(ids.size() * table->dim(), -1);
    const PushFeature feature{table, ids, gradients.data()};
    const PushResult result = client->Push(step, {&feature, 1}).Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  uint64_t Hits() const { return client_->Stats().row_cache_hits; }

  FakeCluster cluster_{2};
  uint32_t table_ = 0;
  std::unique_ptr<Client> client_;
  const Table* t_ = nullptr;
  std::vector<float> rows_;
};

TEST_F(RowCacheTest, ARowIsUsedForItsStepsAndNoLonger) {
  Connect(Caching(4));
  const std::unique_ptr<Client> other = Open(cluster_, "other");
  EXPECT_EQ(Pull({1, 2, 1, 200}, Step(10)), (std::vector<float>{0, 0, 0, 0}));
  Push(other.get(), 1, {1, 2, 200});
  const uint64_t messages = cluster_.pull_messages();
  EXPECT_EQ(Pull({200, 1, 1, 2}, Step(14)), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(cluster_.pull_messages(), messages);
  EXPECT_EQ(Hits(), 3);
  EXPECT_EQ(Pull({1, 200, 1, 5}, Step(15)), (std::vector<float>{1, 1, 1, 0}));
  EXPECT_EQ(Hits(), 3);
  EXPECT_EQ(client_->Stats().row_cache_misses, 6);
  EXPECT_EQ(Pull({1}, Step(3)), (std::vector<float>{1})) << "a step before the client's";
  EXPECT_EQ(Hits(), 4);
}

TEST_F(RowCacheTest, ARowIsUsedForItsTimeAndNoLonger) {
  Connect(Caching(-1, absl::Milliseconds(30)));
  Pull({1, 2});
  const std::unique_ptr<Client> other = Open(cluster_, "other");
  Push(other.get(), 1, {1});
  absl::SleepFor(absl::Milliseconds(31));
  EXPECT_EQ(Pull({1, 2}), (std::vector<float>{1, 0}));
  EXPECT_EQ(Hits(), 0);
}

TEST_F(RowCacheTest, WithoutAStepABoundOfStepsLetsNoRowBeUsed) {
  Connect(Caching(4));
  Pull({1});
  Pull({1});
  EXPECT_EQ(Hits(), 0);
  Push(client_.get(), 1, {2});  // names step 1
  Pull({1});
  EXPECT_EQ(Hits(), 1);
}

TEST_F(RowCacheTest, AnOwnPushIsSeenAtOnce) {
  Connect(Caching(-1, absl::Hours(1)));
  Pull({1, 2, 3});
  Push(client_.get(), 1, {2});
  EXPECT_EQ(Pull({1, 2, 3}), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(Hits(), 2);
  EXPECT_EQ(Pull({1, 2, 3}), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(Hits(), 5) << "the pull after the push kept the row";
}

// The pull is answered before the push is applied, and its answer is taken after the push began.
TEST_F(RowCacheTest, AnAnswerFromBeforeAnOwnPushIsNotKept) {
  Connect(Caching(-1, absl::Hours(1)));
  Push(client_.get(), 1, {299});  // opens the session
  std::atomic<bool> hold{true};
  cluster_.set_push_script([&](int, const PushAsk&) -> std::optional<v1::SegmentReply> {
    if (!hold) return std::nullopt;
    v1::SegmentReply refusal;
    refusal.set_code(v1::UNAVAILABLE);
    return refusal;
  });
  const std::vector<uint64_t> ids = {1};
  const std::vector<float> gradients(kDim, -1);
  const PushFeature feature{t_, ids, gradients.data()};
  const Future<PushResult> push = client_->Push(2, {&feature, 1});
  EXPECT_EQ(Pull({1, 2}), (std::vector<float>{0, 0}));
  hold = false;
  ASSERT_TRUE(push.Wait().status.ok());
  EXPECT_EQ(Pull({1, 2}), (std::vector<float>{1, 0}));
}

TEST_F(RowCacheTest, AnotherEpochOfItsShardEndsARow) {
  Connect(Caching(-1, absl::Hours(1)));
  Pull({0, 299});
  cluster_.Move({table_, 0}, 1);
  Pull({1});  // of the same shard as 0: the answer tells of the move
  Pull({0, 299});
  EXPECT_EQ(Hits(), 1);
  Pull({0, 299});
  EXPECT_EQ(Hits(), 3);
}

TEST_F(RowCacheTest, PullsWithBoundsOfTheirOwnAndOtherTablesGoAroundIt) {
  v1::TableSpec spec;
  spec.set_rows(100);
  spec.set_dim(kDim);
  spec.set_name("bounded");
  spec.set_consistency(v1::CONSISTENCY_BOUNDED);
  cluster_.AddTable(spec, 2);
  spec.set_name("sliced");
  spec.set_consistency(v1::CONSISTENCY_ASYNC);
  spec.set_column_slices(2);
  cluster_.AddTable(spec, 2);
  spec.set_name("unnamed");
  spec.set_column_slices(1);
  cluster_.AddTable(spec, 2);
  ClientOptions caching = Caching(-1, absl::Hours(1));
  caching.row_cache_tables = {"t", "bounded", "sliced"};
  Connect(caching);
  for (const char* name : {"bounded", "sliced", "unnamed"}) {
    for (int i = 0; i < 2; ++i) Pull({1, 99}, {}, *client_->OpenTable(name));
  }
  Pull({1});
  PullOptions strict, fresh, around;
  strict.strict = true;
  fresh.staleness_max = absl::Hours(1);
  around.row_cache = false;
  for (const PullOptions& options : {strict, fresh, around}) Pull({1}, options);
  EXPECT_EQ(Hits(), 0);
  // Such a pull brings later rows, and these are kept.
  const std::unique_ptr<Client> other = Open(cluster_, "other");
  Push(other.get(), 1, {1});
  EXPECT_EQ(Pull({1}, around), (std::vector<float>{1}));
  EXPECT_EQ(Pull({1}), (std::vector<float>{1}));
  EXPECT_EQ(Hits(), 1);
}

TEST_F(RowCacheTest, WireTypesFlagsAndFeaturesAreThoseAskedFor) {
  Connect(Caching(-1, absl::Hours(1)));
  Push(client_.get(), 1, {7});
  const RowType half = RowType::kFp16;
  PullOptions as_half;
  as_half.wire_type = &half;
  Pull({7, 8});
  Pull({7, 8}, as_half);
  EXPECT_EQ(Hits(), 0) << "kept as fp32";
  const std::vector<uint64_t> a = {8, 7, 7}, b = {7};
  std::vector<float> rows_a(a.size() * kDim);
  std::vector<uint8_t> rows_b(RowWireBytes(half, kDim));
  std::vector<uint8_t> exists(a.size(), 9), missing(a.size(), 9), missing_b(1, 9);
  PullFeature features[] = {{t_, a, rows_a.data()}, {t_, b, rows_b.data(), half}};
  for (int round = 0; round < 2; ++round) {  // kept without flags; kept with flags
    features[0].exists = exists.data();
    features[0].missing = missing.data();
    features[1].missing = missing_b.data();
    ASSERT_TRUE(client_->Pull(features, as_half).Wait().ok());
    EXPECT_EQ(exists, (std::vector<uint8_t>{0, 1, 1}));
    EXPECT_EQ(missing, (std::vector<uint8_t>{0, 0, 0}));
    EXPECT_EQ(rows_a[kDim], 1);
    EXPECT_EQ(rows_b[1], 0x3c);  // 1 in fp16
    EXPECT_EQ(Hits(), round * 2);
  }
}

TEST_F(RowCacheTest, MemoryStaysWithinItsBytesAndOldRowsGiveWay) {
  constexpr uint32_t kWide = 512;  // 2 KiB a row: 1,700 rows
  Connect(Caching(-1, absl::Hours(1)), /*rows=*/6000, kWide);
  Random random(3);
  std::vector<float> last(6000);
  for (uint64_t step = 1; step <= 60; ++step) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < 200; ++i) ids.push_back(random.Uniform(random.OneIn(2) ? 6000 : 500));
    if (step % 4 == 0) {
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      Push(client_.get(), step, ids);
      for (const uint64_t id : ids) ++last[id];
    } else {
      const std::vector<float> got = Pull(ids);
      for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(got[i], last[ids[i]]) << ids[i];
    }
  }
  const ClientStats stats = client_->Stats();
  EXPECT_LE(stats.row_cache_bytes, RowCache::kBytesMin);
  EXPECT_GT(stats.row_cache_bytes, RowCache::kBytesMin / 2);
  EXPECT_GT(stats.row_cache_hits, 1000);
  EXPECT_GT(stats.row_cache_evictions, 1000);
}

TEST_F(RowCacheTest, ManyThreadsPullAndPush) {
  Connect(Caching(2));
  std::atomic<uint64_t> acknowledged{0};  // own pushes of row 5
  std::atomic<bool> stop{false};
  std::vector<std::thread> pullers;
  for (int t = 0; t < 3; ++t) {
    pullers.emplace_back([&] {
      while (!stop) {
        const uint64_t least = acknowledged;
        const std::vector<uint64_t> ids = {5, 6, 150, 299};
        std::vector<float> rows(ids.size() * kDim);
        const PullFeature feature{t_, ids, rows.data()};
        ASSERT_TRUE(client_->Pull({&feature, 1}).Wait().ok());
        ASSERT_GE(rows[0], static_cast<float>(least));
      }
    });
  }
  for (uint64_t step = 1; step <= 200; ++step) {
    Push(client_.get(), step, {5, step % kRows});
    acknowledged = step;
  }
  stop = true;
  for (std::thread& puller : pullers) puller.join();
}

TEST(RowCacheOptionsTest, AnOptionThatIsOutOfRangeIsNamed) {
  const auto refusal = [](const ClientOptions& options) {
    return std::string(Client::Connect("hotbed://127.0.0.1:1", options).status().message());
  };
  ClientOptions options = Caching(-1);
  EXPECT_THAT(refusal(options), HasSubstr("set row_cache_steps or row_cache_age"));
  options = Caching(-2);
  EXPECT_THAT(refusal(options), HasSubstr("row_cache_steps is -2; allowed: -1..1000000"));
  options = Caching(1, absl::ZeroDuration());
  EXPECT_THAT(refusal(options), HasSubstr("row_cache_age is 0; allowed: above zero"));
  options = Caching(1);
  options.row_cache_bytes = 1000;
  EXPECT_THAT(refusal(options), HasSubstr("row_cache_bytes is 1000; allowed: 4194304.."));
}

}  // namespace row_cache_test
}  // namespace hotbed
