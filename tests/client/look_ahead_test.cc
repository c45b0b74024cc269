// The look-ahead reader: rows that it hands out are those that a pull would give.
#include "hotbed/look_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/ahead/announced_rows.h"
#include "client/map/table_handle.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "row_math/position.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace look_ahead_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LookAheadTest : public testing::Test {
 protected:
  void Connect(v1::Consistency consistency = v1::CONSISTENCY_ASYNC, uint32_t staleness = 0) {
    v1::TableSpec spec;
    spec.set_name("t");
    spec.set_rows(40);
    spec.set_dim(2);
    spec.set_bounds_mode(v1::BOUNDS_MODULO);
    spec.set_padding_id(39);
    spec.set_consistency(consistency);
    spec.set_staleness(staleness);
    table_ = cluster_.AddTable(spec, 3);
    client_ = Open("look-ahead-test");
    t_ = *client_->OpenTable("t");
  }
  std::unique_ptr<Client> Open(const std::string& name) {
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.session_name = name;
    options.trainer_group = "trainers";
    auto client = Client::Connect(cluster_.target(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::unique_ptr<LookAhead> Create(const LookAheadOptions& options = {}) {
    auto ahead = LookAhead::Create(client_.get(), options);
    EXPECT_TRUE(ahead.ok()) << ahead.status();
    return *std::move(ahead);
  }
  absl::Status Announce(LookAhead* ahead, const std::vector<uint64_t>& ids) {
    const LookAheadFeature feature{t_, ids};
    return ahead->Announce({&feature, 1});
  }
  // The first elements of the rows.
  std::vector<float> Take(LookAhead* ahead, size_t count) {
    std::vector<float> rows(2 * count, 7.0f);
    const absl::Span<float> to = absl::MakeSpan(rows);
    const absl::Status taken = ahead->Take({&to, 1});
    EXPECT_TRUE(taken.ok()) << taken;
    std::vector<float> out;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(rows[2 * i], rows[2 * i + 1]);
      out.push_back(rows[2 * i]);
    }
    return out;
  }
  // Takes 1 off each row, as often as its id occurs.
  Future<PushResult> Push(LookAhead* ahead, uint64_t step, const std::vector<uint64_t>& ids) {
    gradients_.emplace_back(2 * ids.size(), 1.0f);
    const PushFeature feature{t_, ids, gradients_.back().data()};
    return ahead->Push(step, {&feature, 1});
  }
  // Another trainer's push of one step: takes 1 off the row of each id.
  void PushOfOther(Client* other, uint64_t step, const std::vector<uint64_t>& ids) {
    const std::vector<float> gradients(2 * ids.size(), 1.0f);
    const PushFeature feature{*other->OpenTable("t"), ids, gradients.data()};
    PushOptions options;
    options.assign = true;  // the cluster does not tell it apart, and it needs no group
    const PushResult result = other->Push(step, {&feature, 1}, options).Wait();
    ASSERT_TRUE(result.status.ok()) << result.status;
    cluster_.set_ended_by_others(step);
  }
  // The row that an id stands for.
  static uint64_t RowOf(uint64_t id) { return id % 40; }
  static bool IsPadding(uint64_t id) { return RowOf(id) == 39; }

  FakeCluster cluster_{2};
  uint32_t table_ = 0;
  std::unique_ptr<Client> client_;
  const Table* t_ = nullptr;
  std::deque<std::vector<float>> gradients_;
};

// Batches that share most of their rows, and answers that take different times.
struct RandomCase {
  uint32_t behind;     // pushes that may be missing
  uint64_t bytes_max;  // two batches exceed 400, one may exceed 100
};
class LookAheadRandomTest : public LookAheadTest, public testing::WithParamInterface<RandomCase> {};

TEST_P(LookAheadRandomTest, RowsAreThoseOfAPull) {
  const TestSeed seed(9);
  Random random(seed.value());
  Connect();
  std::atomic<uint64_t> calls{0};
  cluster_.set_delay([&] {
    if (Mix64(calls++) % 4 == 0) absl::SleepFor(absl::Microseconds(Mix64(calls) % 2000));
  });
  const auto [behind, bytes_max] = GetParam();
  const auto ahead =
      Create({.batches_max = 4, .bytes_max = bytes_max, .own_pushes_behind = behind});
  std::deque<std::vector<uint64_t>> announced;
  std::vector<std::map<uint64_t, float>> after(1);  // by push: the rows after it
  std::vector<Future<PushResult>> pushes;
  for (uint64_t step = 1; step <= 150; ++step) {
    while (announced.size() < 1 + random.Uniform(4)) {
      std::vector<uint64_t> ids(1 + random.Uniform(30));
      for (uint64_t& id : ids) id = random.Uniform(60);
      ASSERT_TRUE(Announce(ahead.get(), ids).ok());
      announced.push_back(std::move(ids));
    }
    const std::vector<uint64_t> ids = announced.front();
    announced.pop_front();
    const std::vector<float> rows = Take(ahead.get(), ids.size());
    const size_t pushed = after.size() - 1;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (IsPadding(ids[i])) {
        EXPECT_EQ(rows[i], 0);
        continue;
      }
      const float newest = after[pushed][RowOf(ids[i])];
      const float oldest = after[pushed - std::min<size_t>(pushed, behind)][RowOf(ids[i])];
      ASSERT_GE(rows[i], newest) << "step " << step << " id " << ids[i];
      ASSERT_LE(rows[i], oldest) << "step " << step << " id " << ids[i];
    }
    pushes.push_back(Push(ahead.get(), step, ids));
    after.push_back(after.back());
    for (const uint64_t id : ids) {
      if (!IsPadding(id)) after.back()[RowOf(id)] -= 1;
    }
  }
  for (const auto& push : pushes) EXPECT_TRUE(push.Wait().status.ok()) << push.Wait().status;
  const LookAheadStats stats = ahead->Stats();
  EXPECT_EQ(stats.batches, 150);
  EXPECT_EQ(stats.rows, stats.rows_ready + stats.rows_refreshed + stats.rows_late);
  EXPECT_GT(stats.rows_ready, 0);
  EXPECT_GT(stats.rows_refreshed + stats.rows_late, 0);
}
INSTANTIATE_TEST_SUITE_P(Behind, LookAheadRandomTest,
                         testing::Values(RandomCase{0, 1 << 20}, RandomCase{1, 1 << 20},
                                         RandomCase{3, 1 << 20}, RandomCase{0, 100},
                                         RandomCase{1, 400}));

TEST_F(LookAheadTest, WhatWasPulledEarlyIsHandedOutWithoutAMessage) {
  Connect();
  const auto ahead = Create();
  ASSERT_TRUE(Announce(ahead.get(), {1, 2, 2, 30}).ok());
  ASSERT_TRUE(Announce(ahead.get(), {3}).ok());
  ASSERT_TRUE(Push(ahead.get(), 1, {5, 30}).Wait().status.ok());
  // This call notices the push, and pulls row 30 of the oldest batch again.
  ASSERT_TRUE(Announce(ahead.get(), {4}).ok());
  while (client_->Stats().rows_pulled < 6) absl::SleepFor(absl::Milliseconds(1));
  const uint64_t messages = cluster_.pull_messages();
  EXPECT_THAT(Take(ahead.get(), 4), ElementsAre(0, 0, 0, -1));
  EXPECT_EQ(cluster_.pull_messages(), messages);
  const LookAheadStats stats = ahead->Stats();
  EXPECT_EQ(stats.rows, 3);
  EXPECT_EQ(stats.rows_ready, 2);
  EXPECT_EQ(stats.rows_refreshed, 1);
  EXPECT_EQ(stats.rows_late, 0);
}

TEST_F(LookAheadTest, ABatchBeyondBytesMaxIsPulledWhenThereIsRoom) {
  Connect();
  const auto ahead = Create({.bytes_max = 40});  // 5 rows
  const auto pulled = [this] { return client_->Stats().rows_pulled; };
  ASSERT_TRUE(Announce(ahead.get(), {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Announce(ahead.get(), {5, 6}).ok());
  ASSERT_TRUE(Announce(ahead.get(), {7}).ok());
  EXPECT_EQ(client_->Stats().ids_asked, 4) << "the others wait in their order";
  EXPECT_THAT(Take(ahead.get(), 4), ElementsAre(0, 0, 0, 0));
  // That made room for both.
  while (pulled() < 7) absl::SleepFor(absl::Milliseconds(1));
  const uint64_t messages = cluster_.pull_messages();
  EXPECT_THAT(Take(ahead.get(), 2), ElementsAre(0, 0));
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(0));
  EXPECT_EQ(cluster_.pull_messages(), messages);
  EXPECT_EQ(ahead->Stats().rows_ready, 7);
}

TEST_F(LookAheadTest, ABatchThatNeverFitsIsPulledInTake) {
  Connect();
  const auto ahead = Create({.bytes_max = 40});
  ASSERT_TRUE(Announce(ahead.get(), {1, 2, 3, 4, 5, 6, 6}).ok());
  ASSERT_TRUE(Announce(ahead.get(), {6, 7}).ok());
  EXPECT_EQ(client_->Stats().ids_asked, 0);
  Push(ahead.get(), 1, {6});
  EXPECT_THAT(Take(ahead.get(), 7), ElementsAre(0, 0, 0, 0, 0, -1, -1));
  EXPECT_EQ(ahead->Stats().rows_late, 6);
  EXPECT_THAT(Take(ahead.get(), 2), ElementsAre(-1, 0));
  EXPECT_EQ(ahead->Stats().rows_ready, 2);
}

TEST_F(LookAheadTest, PushesOfOthersBeforeTheAnnouncementAreThere) {
  Connect();
  const auto other = Open("other");
  const Table* const t = *other->OpenTable("t");
  const std::vector<uint64_t> ids = {3};
  const std::vector<float> gradients(2, 1.0f);
  const PushFeature feature{t, ids, gradients.data()};
  const auto ahead = Create();
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(other->Push(step, {&feature, 1}).Wait().status.ok());
    ASSERT_TRUE(Announce(ahead.get(), {3}).ok());
    EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(-static_cast<float>(step)));
  }
}

TEST_F(LookAheadTest, OutsideOfStepsRowsOfASynchronousTableArePulledInTake) {
  Connect(v1::CONSISTENCY_SYNC);
  const auto ahead = Create();
  const uint64_t messages = cluster_.pull_messages();
  ASSERT_TRUE(Announce(ahead.get(), {3, 4}).ok());
  EXPECT_EQ(client_->Stats().ids_asked, 0u);
  EXPECT_THAT(Take(ahead.get(), 2), ElementsAre(0, 0));
  EXPECT_GT(cluster_.pull_messages(), messages);
  EXPECT_EQ(ahead->Stats().rows_late, 2);
}

TEST_F(LookAheadTest, RowsOfABoundedTableArePulledAsEarlyAsTheStalenessAllows) {
  Connect(v1::CONSISTENCY_BOUNDED, 1);
  const auto other = Open("other");
  const auto ahead = Create();
  ASSERT_EQ(*client_->JoinTrainers(), 1);
  ASSERT_TRUE(client_->BeginStep(1).ok());
  const auto asked = [this] { return client_->Stats().ids_asked; };
  ASSERT_TRUE(Announce(ahead.get(), {3}).ok());
  ASSERT_TRUE(Announce(ahead.get(), {3, 4}).ok());
  EXPECT_EQ(asked(), 3) << "steps 1 and 2 may lack all others' steps";
  ASSERT_TRUE(Announce(ahead.get(), {3, 4, 5}).ok());
  EXPECT_EQ(asked(), 3) << "step 3 needs step 1 of all trainers";
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(0));
  // The rows of step 2 are on their way; the other's push would change one of them.
  while (client_->Stats().rows_pulled < 3) absl::SleepFor(absl::Milliseconds(1));
  PushOfOther(other.get(), 1, {3, 5});
  EXPECT_EQ(asked(), 3);
  ASSERT_TRUE(client_->EndStep(1).ok());
  ASSERT_TRUE(Announce(ahead.get(), {6}).ok());
  EXPECT_EQ(asked(), 6) << "step 3";
  ASSERT_TRUE(client_->BeginStep(2).ok());
  EXPECT_THAT(Take(ahead.get(), 2), ElementsAre(0, 0));
  ASSERT_TRUE(client_->EndStep(2).ok());
  ASSERT_TRUE(client_->BeginStep(3).ok());
  EXPECT_THAT(Take(ahead.get(), 3), ElementsAre(-1, 0, -1));
  EXPECT_EQ(asked(), 6);
  EXPECT_EQ(ahead->Stats().rows_ready, 6);
}

TEST_F(LookAheadTest, RowsOfASynchronousTableArePulledOnceTheStepBeforeIsCommitted) {
  Connect(v1::CONSISTENCY_SYNC);
  const auto other = Open("other");
  const auto ahead = Create();
  ASSERT_EQ(*client_->JoinTrainers(), 1);
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(client_->BeginStep(step).ok());
    const uint64_t asked = client_->Stats().ids_asked;
    ASSERT_TRUE(Announce(ahead.get(), {3, 4}).ok());
    EXPECT_EQ(client_->Stats().ids_asked, asked + (step == 1 ? 2 : 0));
    EXPECT_THAT(Take(ahead.get(), 2), ElementsAre(1 - static_cast<float>(step), 0));
    PushOfOther(other.get(), step, {3});
    ASSERT_TRUE(client_->EndStep(step).ok());
    // Those of the next step.
    if (step == 1) {
      ASSERT_TRUE(Announce(ahead.get(), {3, 4}).ok());
    }
    ASSERT_TRUE(Push(ahead.get(), step + 1, {}).Wait().status.ok());
    EXPECT_EQ(client_->Stats().ids_asked, asked + 2 + (step == 1 ? 2 : 0));
  }
  EXPECT_EQ(ahead->Stats().rows_late, 0);
}

// Gradients of two batches are accumulated and pushed once per step.
TEST_F(LookAheadTest, BatchesOfOneStepArePulledTogether) {
  Connect(v1::CONSISTENCY_SYNC);
  const auto other = Open("other");
  const auto ahead = Create({.batches_per_step = 2});
  ASSERT_EQ(*client_->JoinTrainers(), 1);
  ASSERT_TRUE(client_->BeginStep(1).ok());
  for (const uint64_t id : {3, 4, 5}) {
    ASSERT_TRUE(Announce(ahead.get(), {id}).ok());
  }
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(0));
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(0));
  EXPECT_EQ(client_->Stats().ids_asked, 2) << "the third batch is of step 2";
  PushOfOther(other.get(), 1, {5});
  ASSERT_TRUE(client_->EndStep(1).ok());
  ASSERT_TRUE(client_->BeginStep(2).ok());
  ASSERT_TRUE(Announce(ahead.get(), {5}).ok());
  EXPECT_EQ(client_->Stats().ids_asked, 4);
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(-1));
  EXPECT_THAT(Take(ahead.get(), 1), ElementsAre(-1));
  EXPECT_EQ(ahead->Stats().rows_late, 0);
}

// With any announcements, and steps of which some take no batch, so that a batch may be that of a
// later step than it was pulled for.
TEST_F(LookAheadTest, NoRowIsOlderThanItsStepAllows) {
  const TestSeed seed(11);
  Random random(seed.value());
  constexpr uint64_t kStaleness = 2;
  Connect(v1::CONSISTENCY_BOUNDED, kStaleness);
  const auto other = Open("other");
  const auto ahead = Create({.batches_max = 6});
  ASSERT_EQ(*client_->JoinTrainers(), 1);
  const std::vector<uint64_t> ids = {3, 17, 30};
  uint64_t announced = 0, pushed = 0;
  for (uint64_t step = 1; step <= 100; ++step) {
    // The others are at most two steps behind, and at most one ahead.
    while (pushed + kStaleness + 1 < step || (pushed < step && random.Uniform(2) == 0)) {
      PushOfOther(other.get(), ++pushed, ids);
    }
    ASSERT_TRUE(client_->BeginStep(step).ok());
    for (; announced < 1 + random.Uniform(6); ++announced) {
      ASSERT_TRUE(Announce(ahead.get(), ids).ok());
    }
    for (uint64_t takes = random.Uniform(3); takes > 0 && announced > 0; --takes, --announced) {
      for (const float row : Take(ahead.get(), ids.size())) {
        ASSERT_GE(-row + 1 + kStaleness, step);
        ASSERT_LE(-row, pushed);
      }
    }
    ASSERT_TRUE(client_->EndStep(step).ok());
  }
  EXPECT_GT(ahead->Stats().rows_ready, 0);
  EXPECT_GT(ahead->Stats().rows_late, 0);
}

TEST_F(LookAheadTest, EmbeddingsPoolAnnouncedBatches) {
  const TestSeed seed(12);
  Random random(seed.value());
  Connect();
  const auto ahead = Create({.batches_max = 3});
  const std::vector<EmbeddingFeature> features = {{"a", t_, Pooling::kSum, "sum"},
                                                  {"b", t_, Pooling::kMean, "mean"},
                                                  {"a", t_, Pooling::kMax, "max"},
                                                  {"b", t_, Pooling::kNone, "none"}};
  EmbeddingOptions options;
  options.pooling_at = PoolingPlace::kClient;
  const auto plain = *Embeddings::Create(client_.get(), features, options);
  options.look_ahead = ahead.get();
  const auto reading = *Embeddings::Create(client_.get(), features, options);
  std::deque<JaggedBatch> announced;
  for (uint64_t step = 1; step <= 60; ++step) {
    while (announced.size() < 1 + random.Uniform(3)) {
      std::vector<uint32_t> lengths(6);  // of three samples; sometimes of no ids
      uint32_t count = 0;
      for (uint32_t& length : lengths) {
        length = static_cast<uint32_t>(step % 10 == 0 ? 0 : random.Uniform(6));
        count += length;
      }
      std::vector<uint64_t> ids(count);
      for (uint64_t& id : ids) id = random.Uniform(60);
      announced.push_back(*JaggedBatch::FromLengths({"a", "b"}, lengths, ids));
      const absl::Status status = reading->Announce(announced.back());
      ASSERT_TRUE(status.ok()) << status;
    }
    EmbeddingOutput expected, out;
    ASSERT_TRUE(plain->Forward(announced.front(), &expected).Wait().ok());
    const absl::Status forward = reading->Forward(announced.front(), &out).Wait();
    ASSERT_TRUE(forward.ok()) << forward;
    ASSERT_EQ(out.values, expected.values) << "step " << step;
    ASSERT_EQ(out.features[3].sequence, expected.features[3].sequence) << "step " << step;
    ASSERT_EQ(out.arg_max, expected.arg_max);
    const std::vector<float> gradients(out.values.size(), 0.5f);
    const std::vector<float> sequence(out.features[3].sequence.size(), 0.25f);
    const PushResult pushed =
        reading->Backward(step, announced.front(), out, {gradients, {{}, {}, {}, sequence}}).Wait();
    ASSERT_TRUE(pushed.status.ok()) << pushed.status;
    announced.pop_front();
  }
  const LookAheadStats stats = ahead->Stats();
  EXPECT_GT(stats.rows_ready, 0);
  EXPECT_GT(stats.rows_refreshed + stats.rows_late, 0) << "changed by Backward";
}

TEST_F(LookAheadTest, EmbeddingsNameWhatDoesNotFitALookAhead) {
  Connect();
  const auto ahead = Create();
  const std::vector<EmbeddingFeature> features = {{"a", t_}};
  const auto batch = JaggedBatch::FromLengths({"a"}, {1}, {3});
  const auto other = JaggedBatch::FromLengths({"a"}, {2}, {3, 4});
  EmbeddingOptions options;
  options.look_ahead = ahead.get();
  options.pooling_at = PoolingPlace::kServer;
  EXPECT_EQ(Embeddings::Create(client_.get(), features, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*Embeddings::Create(client_.get(), features))->Announce(*batch).code(),
            absl::StatusCode::kFailedPrecondition);
  options.pooling_at = PoolingPlace::kAuto;
  const auto embeddings = *Embeddings::Create(client_.get(), features, options);
  EmbeddingOutput out;
  EXPECT_EQ(embeddings->Forward(*batch, &out).Wait().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(embeddings->Announce(*batch).ok());
  EXPECT_EQ(embeddings->Forward(*other, &out).Wait().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(embeddings->Forward(*batch, &out).Wait().ok());
}

TEST_F(LookAheadTest, LimitsAndMistakesAreNamed) {
  Connect();
  const auto refused = [](const absl::Status& status, absl::StatusCode code) {
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(LookAhead::Create(client_.get(), {.batches_max = 0}).status(),
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("batches_max is 0"));
  EXPECT_THAT(refused(LookAhead::Create(client_.get(), {.batches_per_step = 2000}).status(),
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("batches_per_step is 2000"));
  const auto ahead = Create({.batches_max = 2});
  EXPECT_THAT(refused(ahead->Take({}), absl::StatusCode::kFailedPrecondition),
              HasSubstr("no batch is announced"));
  EXPECT_THAT(refused(ahead->Announce({}), absl::StatusCode::kInvalidArgument),
              HasSubstr("no features"));
  ASSERT_TRUE(Announce(ahead.get(), {1, 1, 1, 2}).ok());
  EXPECT_THAT(refused(ahead->Take({}), absl::StatusCode::kInvalidArgument),
              HasSubstr("0 buffers for a batch of 1 features"));
  std::vector<float> rows(6);
  const absl::Span<float> to = absl::MakeSpan(rows);
  EXPECT_THAT(refused(ahead->Take({&to, 1}), absl::StatusCode::kInvalidArgument),
              HasSubstr("feature 0 holds 6 floats"));
  ASSERT_TRUE(Announce(ahead.get(), {1}).ok());
  EXPECT_THAT(refused(Announce(ahead.get(), {1}), absl::StatusCode::kResourceExhausted),
              HasSubstr("2 batches are announced"));
  EXPECT_THAT(Take(ahead.get(), 4), ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(Announce(ahead.get(), {1}).ok());
}

TEST(AnnouncedRowsTest, ARowStaysChangedUntilAPullSeesItsLastPush) {
  const TableHandle table(
      nullptr,
      [] {
        TableOptions options;
        options.name = "t";
        options.rows = 10;
        options.dim = 1;
        return options;
      }(),
      1);
  AnnouncedRows rows(&table);
  ResolvedIds resolved;
  const std::vector<uint64_t> ids = {5, 6, 5, 7};
  ASSERT_EQ(ResolveIds(table.options(), ids, &resolved), ids.size());
  EXPECT_EQ(rows.AddFeature(resolved), 0);
  EXPECT_EQ(rows.AddFeature(resolved), 4);
  rows.MakeRows();
  EXPECT_THAT(rows.ids(), ElementsAre(5, 6, 7));
  rows.NoteChanged({{5, 9, 6}}, 1);
  rows.NoteChanged({{5}}, 2);
  rows.NoteChanged({{7}}, 3);
  EXPECT_THAT(rows.TakeChanged(0), IsEmpty());
  EXPECT_THAT(rows.TakeChanged(1), ElementsAre(0, 1)) << "ids 5 and 6";
  EXPECT_THAT(rows.TakeChanged(1), IsEmpty());
  EXPECT_THAT(rows.TakeChanged(2), ElementsAre(0)) << "push 2 changed id 5, too";
  EXPECT_THAT(rows.TakeChanged(9), ElementsAre(2));
  const float five = 5;
  rows.SetRow(0, &five);
  std::vector<float> out(4);
  rows.CopyTo(4, 4, out.data());
  EXPECT_THAT(out, ElementsAre(5, 0, 5, 0));
}

}  // namespace look_ahead_test
}  // namespace hotbed
