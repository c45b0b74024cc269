#include "common/ring_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace ring_queue_test {

// Against std::deque, with values that own something.
TEST(RingQueue, IsADeque) {
  const TestSeed seed(17);
  Random random(seed.value());
  RingQueue<std::shared_ptr<int>> queue;
  std::deque<std::shared_ptr<int>> twin;
  for (int step = 0; step < 20'000; ++step) {
    const bool grows = step / 500 % 2 == 0;
    const uint64_t dice = random.Uniform(10);
    if (dice < (grows ? 6u : 3u)) {
      auto value = std::make_shared<int>(step);
      queue.push_back(value);
      twin.push_back(value);
    } else if (dice < 9 && !twin.empty()) {
      ASSERT_EQ(queue.front(), twin.front());
      const std::weak_ptr<int> gone = twin.front();
      queue.pop_front();
      twin.pop_front();
      ASSERT_TRUE(gone.expired()) << "a free slot keeps nothing";
    } else if (!twin.empty()) {
      ASSERT_EQ(queue.back(), twin.back());
      queue.pop_back();
      twin.pop_back();
    }
    ASSERT_EQ(queue.size(), twin.size());
    ASSERT_EQ(queue.empty(), twin.empty());
    if (step % 50 != 0) continue;
    size_t at = 0;
    for (const auto& value : queue) ASSERT_EQ(value, twin[at++]);
    for (size_t i = 0; i < twin.size(); ++i) ASSERT_EQ(queue[i], twin[i]);
  }
  queue.clear();
  EXPECT_TRUE(queue.empty());
}

}  // namespace ring_queue_test
}  // namespace hotbed
