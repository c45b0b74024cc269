#include "client/push/push_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace hotbed {
namespace push_ledger_test {

using testing::HasSubstr;
using Outcome = PushResult::Outcome;

class PushLedgerTest : public testing::Test {
 protected:
  // One part per shard.
  std::unique_ptr<PushCall> CallOf(uint64_t step, int64_t deadline_ns, uint32_t shards = 1) {
    auto call = std::make_unique<PushCall>();
    call->step = step;
    call->deadline_ns = deadline_ns;
    call->bytes = 10;
    for (uint32_t shard = 0; shard < shards; ++shard) {
      PushPart part;
      part.call = call.get();
      part.table = &table_;
      part.shard = shard;
      call->parts.push_back(std::move(part));
    }
    return call;
  }
  PushCall* Add(uint64_t step, int64_t deadline_ns, uint32_t shards = 1) {
    auto call = CallOf(step, deadline_ns, shards);
    PushCall* const added = call.get();
    future_ = ledger_.Add(std::move(call), nullptr, 0);
    return added;
  }
  bool Finish(PushCall* call, size_t part, const absl::Status& status = absl::OkStatus()) {
    PushLedger::Resolutions resolutions;
    const bool last = ledger_.Finish(&call->parts[part], status, clock_, &resolutions);
    PushLedger::Resolve(std::move(resolutions));
    return last;
  }
  void Expire(int64_t now_ns) {
    PushLedger::Resolutions resolutions;
    ledger_.Expire(now_ns, &resolutions);
    PushLedger::Resolve(std::move(resolutions));
  }

  TableHandle table_{nullptr, TableOptions{}, 4};
  ManualClock clock_;
  PushLedger ledger_{2, 1000};
  Future<PushResult> future_;
};

TEST_F(PushLedgerTest, AFutureIsReadyWithTheLastPart) {
  PushCall* const call = Add(7, 100, 2);
  EXPECT_FALSE(Finish(call, 1));
  EXPECT_FALSE(future_.ready());
  EXPECT_TRUE(Finish(call, 0));
  EXPECT_EQ(future_.Wait().outcome, Outcome::kApplied);
  EXPECT_EQ(future_.Wait().step, 7);
  EXPECT_TRUE(ledger_.AllAnswered(7));
}

TEST_F(PushLedgerTest, ARefusalNamesItsShard) {
  PushCall* const call = Add(7, 100, 2);
  Finish(call, 1, absl::OutOfRangeError("an id"));
  Finish(call, 0);
  EXPECT_EQ(future_.Wait().outcome, Outcome::kFailed);
  ASSERT_EQ(future_.Wait().shards.size(), 1);
  EXPECT_EQ(future_.Wait().shards[0].index, 1);
}

TEST_F(PushLedgerTest, StepsOfATableMustGrow) {
  Add(7, 100);
  EXPECT_THAT(std::string(ledger_.CheckSteps(*CallOf(7, 100)).message()),
              HasSubstr("step 7 after step 7"));
  EXPECT_TRUE(ledger_.CheckSteps(*CallOf(8, 100)).ok());
}

TEST_F(PushLedgerTest, AnExpiredPushStaysOpenAndRetryFindsItsResult) {
  PushCall* const call = Add(7, 100);
  Expire(99);
  EXPECT_FALSE(future_.ready());
  Expire(100);
  const PushResult late = future_.Wait();
  EXPECT_EQ(late.outcome, Outcome::kIndeterminate);
  EXPECT_FALSE(ledger_.AllAnswered(7));
  EXPECT_TRUE(ledger_.AllAnswered(6));
  EXPECT_FALSE(ledger_.window().Admits(991, 1'000'000'000)) << "it counts in the window";

  const Future<PushResult> again = ledger_.Retry(late, 200, nullptr);
  Expire(150);
  EXPECT_FALSE(again.ready());
  EXPECT_TRUE(Finish(call, 0));
  EXPECT_EQ(again.Wait().outcome, Outcome::kApplied);
  EXPECT_TRUE(absl::IsNotFound(ledger_.Retry(late, 200, nullptr).Wait().status)) << "claimed";
}

TEST_F(PushLedgerTest, AResultThatNobodyWaitsForIsKeptForRetry) {
  PushCall* const call = Add(7, 100);
  Expire(100);
  const PushResult late = future_.Wait();
  Finish(call, 0);
  EXPECT_EQ(ledger_.Retry(late, 200, nullptr).Wait().outcome, Outcome::kApplied);
}

TEST_F(PushLedgerTest, UnansweredPushesAreListedByTicket) {
  for (uint64_t step = 1; step <= 5; ++step) Add(step, 100);
  const std::vector<PushResult> open = ledger_.Unanswered(0);
  ASSERT_EQ(open.size(), 5);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(open[i].step, i + 1);
  EXPECT_TRUE(ledger_.Unanswered(-1).empty());
}

}  // namespace push_ledger_test
}  // namespace hotbed
