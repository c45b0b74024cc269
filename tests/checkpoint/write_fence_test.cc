#include "checkpoint/write_fence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace hotbed {
namespace write_fence_test {

class WriteFenceTest : public testing::Test {
 protected:
  WriteFenceTest() : path_(testing::TempDir() + "/write_fence_test") {
    std::remove(path_.c_str());
    EXPECT_TRUE(WriteFence::Make(path_).ok());
  }
  ~WriteFenceTest() override { std::remove(path_.c_str()); }
  const std::string path_;
};

TEST_F(WriteFenceTest, NobodyWritesOnceItIsClosed) {
  std::atomic<bool> closed{false};
  std::atomic<int> writes{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    auto opened = WriteFence::Open(path_);
    ASSERT_TRUE(opened.ok());
    writers.emplace_back([&, fence = std::move(opened)] {
      absl::Status status;
      while (status.ok()) {
        status = (*fence)->Run([&] {
          EXPECT_FALSE(closed.load());
          ++writes;
          return absl::OkStatus();
        });
      }
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
    });
  }
  while (writes.load() < 1000) std::this_thread::yield();
  ASSERT_TRUE(WriteFence::Close(path_, absl::Minutes(1)).ok());
  closed.store(true);
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(WriteFence::Close(path_, absl::ZeroDuration()).ok());  // there is none
  EXPECT_TRUE(absl::IsNotFound(WriteFence::Open(path_).status()));
}

TEST_F(WriteFenceTest, ANewFenceOfTheSameNameIsNotTheOldOne) {
  const auto old = WriteFence::Open(path_);
  ASSERT_TRUE(WriteFence::Close(path_, absl::Seconds(1)).ok());
  ASSERT_TRUE(WriteFence::Make(path_).ok());
  const auto never = [] { return absl::InternalError("it was called"); };
  EXPECT_TRUE(absl::IsCancelled((*old)->Run(never)));
}

TEST_F(WriteFenceTest, AWriteInProgressIsWaitedFor) {
  absl::Notification began, may_end;
  std::thread writer([&] {
    const auto fence = WriteFence::Open(path_);
    EXPECT_TRUE((*fence)
                    ->Run([&] {
                      began.Notify();
                      may_end.WaitForNotification();
                      return absl::OkStatus();
                    })
                    .ok());
  });
  began.WaitForNotification();
  EXPECT_TRUE(absl::IsUnavailable(WriteFence::Close(path_, absl::Milliseconds(50))));
  may_end.Notify();
  EXPECT_TRUE(WriteFence::Close(path_, absl::Minutes(1)).ok());
  writer.join();
}

}  // namespace write_fence_test
}  // namespace hotbed
