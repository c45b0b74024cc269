// Calls of the output layer at a server, as another client might send them: refusals, calls that
// are sent again, shards that are elsewhere, restarts.
#include "server/output/softmax_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/random.h"
#include "server/net/byte_budget.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace softmax_calls_test {

using ::testing::HasSubstr;
using What = SoftmaxInput::What;

constexpr uint64_t kRows = 1'500;  // three blocks in the one shard, or two in each of two
constexpr uint32_t kDim = 4;
constexpr size_t kTokens = 3;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class SoftmaxCallsTest : public ::testing::Test {
 protected:
  void Start(uint32_t shards, const std::function<void(TableSpec*)>& change = nullptr) {
    table_ = TestTable(5, "classes", kRows, kDim, OptimizerKind::kAdagrad);
    if (change) change(&table_);
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.checkpoint_interval_ms = 0;
    server_ = std::make_unique<TestServer>(options, std::vector<TableSpec>{table_}, shards);
    server_->Start();
    calls_ = std::make_unique<SoftmaxCalls>(server_->host(), Clock::Real(), 2);
  }
  void TearDown() override { calls_.reset(); }
  // kill -9, and the next life.
  void Restart() {
    calls_.reset();
    server_->Kill();
    server_->Start();
    calls_ = std::make_unique<SoftmaxCalls>(server_->host(), Clock::Real(), 2);
  }

  v1::SoftmaxRequest Request() const {
    v1::SoftmaxRequest request;
    request.set_table(table_.id);
    for (const ShardRecord& record : server_->records()) {
      v1::SoftmaxShard& shard = *request.add_shards();
      shard.set_shard(record.shard.packed());
      shard.set_epoch(record.epoch);
      shard.set_range_first(record.range.first);
      shard.set_range_limit(record.range.limit);
    }
    std::vector<float> hidden;
    for (size_t i = 0; i < kTokens * kDim; ++i)
      hidden.push_back(0.1f * static_cast<float>(i) - 0.5f);
    request.set_hidden(BytesOf(hidden));
    request.set_targets(BytesOf(std::vector<uint64_t>{0, 700, 1499}));
    request.set_timeout_ms(60'000);
    return request;
  }
  v1::SoftmaxRequest Update(uint64_t step, bool open) const {
    v1::SoftmaxRequest request = Request();
    v1::SoftmaxScales& scales = *request.mutable_scales();
    scales.set_maxima(BytesOf(std::vector<float>(kTokens, 0)));
    scales.set_factors(BytesOf(std::vector<float>(kTokens, 0.01f)));
    scales.set_floors(BytesOf(std::vector<float>(kTokens, 0)));
    scales.set_target_factors(BytesOf(std::vector<float>(kTokens, 1)));
    v1::SoftmaxUpdate& update = *request.mutable_update();
    update.set_session(9);
    update.set_incarnation(1);
    update.set_step(step);
    update.set_gradient_scale(1);
    for (v1::SoftmaxShard& shard : *request.mutable_shards()) shard.set_open(open);
    return request;
  }
  v1::SoftmaxReply Answer(What what, const v1::SoftmaxRequest& request) {
    const auto reply = calls_->Answer(what, request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::SoftmaxReply();
  }
  std::string Refusal(What what, const std::function<void(v1::SoftmaxRequest*)>& change) {
    v1::SoftmaxRequest request = Update(1, true);
    change(&request);
    const auto reply = calls_->Answer(what, request);
    EXPECT_FALSE(reply.ok());
    return std::string(reply.status().message());
  }
  std::vector<float> Rows() {
    std::vector<uint64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), uint64_t{0});
    return server_->Pull(table_.id, ids);
  }

  TempDir dir_;
  TableSpec table_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<SoftmaxCalls> calls_;
};

// A client does not send these; whoever does learns what is allowed, and nothing is changed.
TEST_F(SoftmaxCallsTest, SaysWhatIsAllowed) {
  Start(2);
  const std::vector<float> before = Rows();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto statistics = [&](const auto& change) { return Refusal(What::kStatistics, change); };
  const auto update = [&](const auto& change) { return Refusal(What::kUpdate, change); };
  EXPECT_THAT(statistics([](auto* r) { r->set_targets("1234567"); }),
              HasSubstr("targets has 7 bytes, allowed: 8 to 131072, a multiple of 8"));
  EXPECT_THAT(statistics([](auto* r) {
                r->set_targets(BytesOf<uint64_t>({0, 1500, 3}));
              }),
              HasSubstr("targets: 1500 is outside table classes, allowed: 0..1499"));
  EXPECT_THAT(statistics([](auto* r) { r->mutable_hidden()->append("1234"); }),
              HasSubstr("hidden has 52 bytes, allowed: 48, since table classes has dim 4"));
  EXPECT_THAT(statistics([&](auto* r) { r->set_hidden(BytesOf(std::vector<float>(12, nan))); }),
              HasSubstr("hidden: element 0 is nan, allowed: finite numbers"));
  EXPECT_THAT(statistics([](auto* r) { r->set_timeout_ms(0); }),
              HasSubstr("timeout_ms is 0, allowed: 1..600000"));
  EXPECT_THAT(statistics([](auto* r) { r->clear_shards(); }),
              HasSubstr("there are 0 shards, allowed: 1..1024"));
  EXPECT_THAT(statistics([](auto* r) { r->set_table(6); }),
              HasSubstr("allowed: shards of table 6"));
  EXPECT_THAT(statistics([](auto* r) {
                r->set_want_logits(true);
                r->mutable_shards(0)->set_range_limit(1 << 20);
              }),
              HasSubstr("allowed: at most 8388608; send fewer tokens or shards"));
  EXPECT_THAT(update([](auto* r) { r->mutable_scales()->set_floors("1234"); }),
              HasSubstr("scales.floors has 4 bytes, allowed: 12"));
  EXPECT_THAT(update([&](auto* r) {
                r->mutable_scales()->set_factors(BytesOf(std::vector<float>(3, nan)));
              }),
              HasSubstr("scales.factors: element 0 is nan"));
  EXPECT_THAT(update([&](auto* r) { r->mutable_update()->set_gradient_scale(nan); }),
              HasSubstr("update.gradient_scale is nan"));
  EXPECT_THAT(update([](auto* r) { r->mutable_update()->set_session(0); }),
              HasSubstr("update.step is 1 of session 0"));
  EXPECT_THAT(update([](auto* r) {
                r->mutable_update()->set_added_rows(BytesOf<uint64_t>({3, 3}));
                r->mutable_update()->set_added_gradients(BytesOf(std::vector<float>(8)));
              }),
              HasSubstr("update.added_rows: 3 comes after 3, allowed: each row once"));
  EXPECT_THAT(update([](auto* r) {
                r->mutable_update()->set_added_rows(BytesOf<uint64_t>({3}));
                r->mutable_update()->set_added_gradients(BytesOf(std::vector<float>(3)));
              }),
              HasSubstr("update.added_gradients has 12 bytes, allowed: 16 for 1 rows"));
  EXPECT_EQ(Rows(), before);
}

TEST_F(SoftmaxCallsTest, SynchronousTablesTakeNoUpdates) {
  Start(1, [](TableSpec* table) { table->consistency = Consistency::kSync; });
  EXPECT_THAT(Refusal(What::kUpdate, [](auto*) {}), HasSubstr("table classes is synchronous"));
}

TEST_F(SoftmaxCallsTest, WhoMayNotUseTheTableIsRefused) {
  Start(1);
  absl::Status said;
  absl::Notification answered;
  calls_->Call(
      What::kStatistics, Request(),
      [](absl::string_view table) { return absl::PermissionDeniedError(std::string(table)); },
      [&](const absl::StatusOr<std::string>& answer, const std::shared_ptr<const void>&) {
        said = answer.status();
        answered.Notify();
      });
  answered.WaitForNotification();
  EXPECT_TRUE(absl::IsPermissionDenied(said)) << said;
  EXPECT_EQ(said.message(), "classes");
}

// However often it is sent: by the client that got no answer, or by one that knows the sequence.
TEST_F(SoftmaxCallsTest, AnUpdateIsAppliedOnceAlsoAfterAKill) {
  Start(2);
  const std::vector<float> before = Rows();
  const v1::SoftmaxReply first = Answer(What::kUpdate, Update(1, true));
  const std::vector<float> after = Rows();
  EXPECT_NE(after, before);
  ASSERT_EQ(first.shards_size(), 2);
  EXPECT_EQ(first.shards(0).code(), v1::OK);
  EXPECT_EQ(first.shards(0).last_seq(), 1ull << 20 | 2);  // rows 512 to 749 are in block 2
  EXPECT_EQ(first.shards(1).last_seq(), 1ull << 20 | 3);
  const v1::SoftmaxReply again = Answer(What::kUpdate, Update(1, true));
  EXPECT_EQ(again.shards(0).code(), v1::OK);
  EXPECT_EQ(Rows(), after);
  Restart();
  EXPECT_EQ(Rows(), after);
  v1::SoftmaxRequest known = Update(1, false);
  known.mutable_shards(0)->set_prev_seq(first.shards(0).last_seq());
  const v1::SoftmaxReply third = Answer(What::kUpdate, known);
  EXPECT_EQ(third.shards(0).code(), v1::OK);
  EXPECT_EQ(third.shards(1).code(), v1::OK);
  EXPECT_EQ(Rows(), after);
}

// Step 2 does not follow on what the client says that it sent last: a push may be missing.
TEST_F(SoftmaxCallsTest, AGapIsNoticedAndNothingIsApplied) {
  Start(1);
  const v1::SoftmaxReply first = Answer(What::kUpdate, Update(1, true));
  const std::vector<float> after = Rows();
  const v1::SoftmaxReply gap = Answer(What::kUpdate, Update(2, false));
  EXPECT_EQ(gap.shards(0).code(), v1::GAP);
  EXPECT_EQ(gap.shards(0).last_seq(), first.shards(0).last_seq());
  EXPECT_EQ(Rows(), after);
  v1::SoftmaxRequest second = Update(2, false);
  second.mutable_shards(0)->set_prev_seq(gap.shards(0).last_seq());
  EXPECT_EQ(Answer(What::kUpdate, second).shards(0).code(), v1::OK);
  EXPECT_NE(Rows(), after);
}

TEST_F(SoftmaxCallsTest, ShardsThatAreElsewhereSpoilNothing) {
  Start(3);
  v1::SoftmaxRequest request = Request();
  const v1::SoftmaxReply all = Answer(What::kStatistics, request);
  request.mutable_shards(0)->set_epoch(request.shards(0).epoch() + 1);
  request.mutable_shards(2)->set_range_first(request.shards(2).range_first() + 1);
  const v1::SoftmaxReply some = Answer(What::kStatistics, request);
  EXPECT_EQ(some.shards(0).code(), v1::WRONG_EPOCH);
  EXPECT_EQ(some.shards(0).record().shard(), request.shards(0).shard());
  EXPECT_EQ(some.shards(1).code(), v1::OK);
  EXPECT_EQ(some.shards(2).code(), v1::UNKNOWN_SHARD);
  v1::SoftmaxRequest rest = Request();
  rest.mutable_shards()->DeleteSubrange(1, 1);
  const v1::SoftmaxReply others = Answer(What::kStatistics, rest);
  const auto sum = [](const v1::SoftmaxReply& reply, size_t token) {
    double value = 0;
    float most = 0;
    std::memcpy(&value, reply.sums().data() + 8 * token, 8);
    std::memcpy(&most, reply.maxima().data() + 4 * token, 4);
    return value * std::exp(most);
  };
  for (size_t t = 0; t < kTokens; ++t) {
    EXPECT_NEAR(sum(all, t), sum(some, t) + sum(others, t), 1e-6 * sum(all, t));
  }
}

TEST_F(SoftmaxCallsTest, RowsWithoutAGradientAndThePaddingRowAreNotPushed) {
  Start(1, [](TableSpec* table) {
    table->has_padding_id = true;
    table->padding_id = 700;
  });
  v1::SoftmaxRequest request = Update(1, true);
  request.mutable_scales()->set_factors(BytesOf(std::vector<float>(kTokens, 0)));
  const std::vector<float> before = Rows();
  Answer(What::kUpdate, request);
  const std::vector<float> after = Rows();
  for (uint64_t row = 0; row < kRows; ++row) {
    const bool changed = !std::equal(after.begin() + row * kDim, after.begin() + (row + 1) * kDim,
                                     before.begin() + row * kDim);
    EXPECT_EQ(changed, row == 0 || row == 1499) << row;
  }
}

// The memory of calls is that of pulls: a call waits until others have given theirs back.
TEST_F(SoftmaxCallsTest, ACallWaitsForMemory) {
  Start(1);
  ByteBudget memory(1 << 20, 8);
  calls_->SetMemory(&memory);
  ASSERT_EQ(memory.Reserve(1 << 20, {}), ByteBudget::Outcome::kReserved);
  absl::Notification answered;
  calls_->Call(What::kStatistics, Request(), nullptr,
               [&](const absl::StatusOr<std::string>& answer, const std::shared_ptr<const void>&) {
                 EXPECT_TRUE(answer.ok()) << answer.status();
                 answered.Notify();
               });
  EXPECT_FALSE(answered.HasBeenNotified());
  memory.Release(1 << 20);
  answered.WaitForNotification();
  calls_.reset();
  EXPECT_EQ(memory.in_flight(), 0);
}

}  // namespace softmax_calls_test
}  // namespace hotbed
