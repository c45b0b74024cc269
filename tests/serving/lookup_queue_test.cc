#include "serving/lookup_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace hotbed {
namespace lookup_queue_test {

constexpr int64_t kPlentyNs = 3600 * kSecondNs;
constexpr uint64_t kBytesMax = 1000;

// A queue of one thread whose tasks note the order in which they run.
class LookupQueueTest : public testing::Test {
 protected:
  ~LookupQueueTest() override { LetGo(); }

  absl::Status Ask(const std::string& name, uint64_t bytes, bool batch = false,
                   int64_t left_ns = kPlentyNs) {
    const LookupQueue::Wanted wanted = {.bytes = bytes, .batch = batch, .left_ns = left_ns};
    return queue_->Run(
        wanted, [this, name] { ran_.push_back(name); }, &retry_ns_);
  }
  // From now on tasks wait, until they are let go.
  void Occupy() {
    absl::Notification inline_begun, thread_begun;
    const auto stay = [this](absl::Notification* begun) {
      const absl::Status run = queue_->Run(
          {.bytes = 1, .left_ns = kPlentyNs},
          [this, begun] {
            begun->Notify();
            goes_on_.WaitForNotification();
          },
          &retry_ns_);
      EXPECT_TRUE(run.ok()) << run;
    };
    // One that nothing stands before runs on its caller's thread, the next one on the queue's.
    inline_ = std::thread([&] { stay(&inline_begun); });
    inline_begun.WaitForNotification();
    stay(&thread_begun);
    thread_begun.WaitForNotification();
  }
  // All that waits is run.
  void LetGo() {
    if (queue_ == nullptr) return;
    goes_on_.Notify();
    inline_.join();
    queue_.reset();
  }

  absl::Notification goes_on_;
  int64_t retry_ns_ = 0;
  std::vector<std::string> ran_;  // by the one thread
  std::unique_ptr<LookupQueue> queue_ = std::make_unique<LookupQueue>(1, kBytesMax, Clock::Real());
  std::thread inline_;
};

TEST_F(LookupQueueTest, InferenceRunsBeforeBatch) {
  Occupy();
  ASSERT_TRUE(Ask("batch 1", 10, true).ok());
  ASSERT_TRUE(Ask("one", 10).ok());
  ASSERT_TRUE(Ask("batch 2", 10, true).ok());
  ASSERT_TRUE(Ask("two", 10).ok());
  EXPECT_EQ(queue_->waiting_bytes(), 40u);
  LetGo();
  EXPECT_THAT(ran_, testing::ElementsAre("one", "two", "batch 1", "batch 2"));
}

TEST_F(LookupQueueTest, QuickOnesOfInferenceWaitForNobody) {
  Occupy();
  ASSERT_TRUE(Ask("waits", 10).ok());
  const auto ask_quick = [this](const std::string& name, bool batch) {
    return queue_->Run(
        {.bytes = 1, .batch = batch, .quick = true, .left_ns = kPlentyNs},
        [this, name] { ran_.push_back(name); }, &retry_ns_);
  };
  ASSERT_TRUE(ask_quick("quick batch", true).ok());
  EXPECT_THAT(ran_, testing::IsEmpty());
  ASSERT_TRUE(ask_quick("quick", false).ok());
  EXPECT_THAT(ran_, testing::ElementsAre("quick"));
  LetGo();
  EXPECT_THAT(ran_, testing::ElementsAre("quick", "waits", "quick batch"));
}

TEST_F(LookupQueueTest, BytesThatWaitAreBounded) {
  Occupy();
  ASSERT_TRUE(Ask("large", 5 * kBytesMax).ok());  // alone
  const absl::Status full = Ask("small", 1);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("hold 5000 of 1000 bytes"));
  EXPECT_GE(retry_ns_, 5 * kMillisecondNs);
  // Batch scoring has half, and does not stand in the way of inference.
  ASSERT_TRUE(Ask("batch", 400, true).ok());
  EXPECT_FALSE(Ask("more batch", 101, true).ok());
  ASSERT_TRUE(Ask("more batch", 100, true).ok());
  LetGo();
  EXPECT_THAT(ran_, testing::ElementsAre("large", "batch", "more batch"));
}

TEST_F(LookupQueueTest, ACallerWhoseTimeWouldBeOverBeforeItsTurnIsRefused) {
  // The queue learns its rate from tasks that take 50 ms per byte or more.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue_
                    ->Run(
                        {.bytes = 1, .left_ns = kPlentyNs},
                        [] { Clock::Real()->SleepNs(50 * kMillisecondNs); }, &retry_ns_)
                    .ok());
  }
  Occupy();
  ASSERT_TRUE(Ask("patient", 100).ok());
  EXPECT_EQ(Ask("hasty", 100, false, 10 * kMillisecondNs).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_GT(retry_ns_, 10 * kMillisecondNs);
  EXPECT_TRUE(Ask("patient too", 100).ok());
  LetGo();
  EXPECT_THAT(ran_, testing::ElementsAre("patient", "patient too"));
}

}  // namespace lookup_queue_test
}  // namespace hotbed
