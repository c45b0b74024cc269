#include "server/net/byte_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace hotbed {
namespace byte_budget_test {

using Outcome = ByteBudget::Outcome;

// Releases granted bytes at once, if told to.
class Recorder final : public ByteBudget::Waiter {
 public:
  Recorder(ByteBudget* budget, std::vector<int>* order, int name, uint64_t release)
      : budget_(budget), order_(order), name_(name), release_(release) {}
  void Granted() override {
    order_->push_back(name_);
    if (release_ > 0) budget_->Release(release_);
  }
  void Expired() override { order_->push_back(-name_); }
  bool Gone() const override { return gone; }

  bool gone = false;

 private:
  ByteBudget* budget_;
  std::vector<int>* order_;
  int name_;
  uint64_t release_;
};

TEST(ByteBudgetTest, FirstComeFirstServed) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder big(&budget, &order, 1, 0);
  Recorder small(&budget, &order, 2, 0);
  EXPECT_EQ(budget.Reserve(60, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(50, {&big}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(10, {&small}), Outcome::kWaiting);  // would fit, but does not pass
  EXPECT_EQ(budget.in_flight(), 60u);
  budget.Release(60);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(budget.in_flight(), 60u);
}

TEST(ByteBudgetTest, AdmitsWhatIsLargerThanTheLimitWhenAlone) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder huge(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(1, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(5000, {&huge}), Outcome::kWaiting);
  budget.Release(1);
  EXPECT_EQ(order.size(), 1u);
  EXPECT_EQ(budget.in_flight(), 5000u);
}

TEST(ByteBudgetTest, RefusesBeyondTheWaiters) {
  ByteBudget budget(10, 1);
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(10, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(1, {&waiter}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(1, {}), Outcome::kRefused);
}

TEST(ByteBudgetTest, ManyWaitersThatReleaseAtOnceDoNotDeepenTheStack) {
  ByteBudget budget(10, 1 << 20);
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 10);
  EXPECT_EQ(budget.Reserve(10, {}), Outcome::kReserved);
  for (int i = 0; i < 200'000; ++i) ASSERT_EQ(budget.Reserve(10, {&waiter}), Outcome::kWaiting);
  budget.Release(10);
  EXPECT_EQ(order.size(), 200'000u);
  EXPECT_EQ(budget.in_flight(), 0u);
}

TEST(ByteBudgetTest, OneReleaseGrantsAFewAndHandsTheRestOver) {
  ByteBudget budget(10, 1000);
  int handed_over = 0;
  budget.SetHandOver([&handed_over] { ++handed_over; });
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 10);
  EXPECT_EQ(budget.Reserve(10, {}), Outcome::kReserved);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(budget.Reserve(10, {&waiter}), Outcome::kWaiting);
  budget.Release(10);
  EXPECT_EQ(order.size(), size_t{ByteBudget::kGrantsMax});
  EXPECT_EQ(handed_over, 1);
  for (int calls = 2; order.size() < 100; ++calls) {
    budget.GrantMore();
    EXPECT_LE(order.size(), size_t{ByteBudget::kGrantsMax} * calls);
    ASSERT_EQ(handed_over, std::min(calls, 100 / ByteBudget::kGrantsMax));
  }
  EXPECT_EQ(budget.in_flight(), 0u);
}

TEST(ByteBudgetTest, WhoeverWaitsBeyondItsDeadlineOrHasGoneIsTakenOut) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder first(&budget, &order, 1, 0);
  Recorder late(&budget, &order, 2, 0);
  Recorder gone(&budget, &order, 3, 0);
  Recorder last(&budget, &order, 4, 0);
  EXPECT_EQ(budget.Reserve(60, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(50, {&first, 2000, 5}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(50, {&late, 1000, 6}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(50, {&gone, 0, 7}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(50, {&last, 0, 8}), Outcome::kWaiting);
  EXPECT_EQ(budget.waiting_bytes(), 26u);
  budget.Expire(999);
  EXPECT_TRUE(order.empty());
  gone.gone = true;
  budget.Expire(1000);
  EXPECT_EQ(order, (std::vector<int>{-2, -3}));
  EXPECT_EQ(budget.waiting_bytes(), 13u);
  budget.Release(60);
  EXPECT_EQ(order, (std::vector<int>{-2, -3, 1, 4})) << "the others keep their places";
  EXPECT_EQ(budget.waiting_bytes(), 0u);
  EXPECT_EQ(budget.in_flight(), 100u);
}

TEST(ByteBudgetTest, OneThatExpiresMakesRoomForThoseBehindIt) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder big(&budget, &order, 1, 0);
  Recorder small(&budget, &order, 2, 0);
  EXPECT_EQ(budget.Reserve(60, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(90, {&big, 1000}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(10, {&small}), Outcome::kWaiting);
  budget.Expire(1000);
  EXPECT_EQ(order, (std::vector<int>{2, -1}));
}

TEST(ByteBudgetTest, RefusesBeyondTheMemoryOfThoseThatWait) {
  ByteBudget budget(10, 100, /*waiting_bytes_max=*/100);
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(10, {}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(10, {&waiter, 0, 70}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(10, {&waiter, 0, 31}), Outcome::kRefused);
  EXPECT_EQ(budget.Reserve(10, {&waiter, 0, 30}), Outcome::kWaiting);
  budget.Release(10);  // the first
  budget.Release(10);  // the second
  EXPECT_EQ(budget.Reserve(10, {&waiter, 0, 5000}), Outcome::kWaiting)
      << "alone, any size may wait";
}

TEST(ByteBudgetTest, AConnectionLeavesAsMuchAsItTakes) {
  ByteBudget budget(100, 100);
  std::vector<int> order;
  ByteBudget::Account greedy;
  ByteBudget::Account other;
  Recorder more(&budget, &order, 1, 0);
  Recorder modest(&budget, &order, 2, 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(budget.Reserve(10, {&more, 0, 0, &greedy}), Outcome::kReserved);
  }
  EXPECT_EQ(budget.Reserve(10, {&more, 0, 0, &greedy}), Outcome::kWaiting);
  // It waits for its own; the others do not wait for it.
  EXPECT_EQ(budget.Reserve(20, {&modest, 0, 0, &other}), Outcome::kReserved);
  EXPECT_TRUE(order.empty());
  budget.Release(10, &greedy);
  EXPECT_TRUE(order.empty());
  budget.Release(20, &other);
  EXPECT_EQ(order, (std::vector<int>{1}));
}

// Each connection of the peer would take half of what the others leave.
TEST(ByteBudgetTest, ManyConnectionsOfAPeerLeaveAThirdOfWhatTheyTake) {
  ByteBudget budget(120, 100);
  std::vector<int> order;
  ByteBudget::Peer crowd;
  ByteBudget::Peer modest;
  std::vector<ByteBudget::Account> many(50, ByteBudget::Account{.of = &crowd});
  ByteBudget::Account other = {.of = &modest};
  Recorder more(&budget, &order, 1, 0);
  Recorder late(&budget, &order, 2, 0);
  uint64_t taken = 0;
  for (ByteBudget::Account& account : many) {
    while (budget.Reserve(1, {&more, 0, 0, &account}) == Outcome::kReserved) ++taken;
  }
  EXPECT_EQ(taken, 90u);
  EXPECT_EQ(crowd.in_flight, 90u);
  EXPECT_EQ(budget.Reserve(15, {&more, 0, 0, &other}), Outcome::kReserved) << "not held up";
  budget.Release(15, &other);
  EXPECT_EQ(modest.in_flight, 0u);
  for (ByteBudget::Account& account : many) {
    while (account.in_flight > 0) budget.Release(1, &account);
  }
}

TEST(ByteBudgetTest, RequestsOfAPeerThatHasTooMuchAreServedInTheirOrder) {
  ByteBudget budget(120, 100);
  std::vector<int> order;
  ByteBudget::Peer crowd;
  ByteBudget::Account busy[2] = {{.of = &crowd}, {.of = &crowd}};
  ByteBudget::Account fresh = {.of = &crowd};
  ByteBudget::Account later = {.of = &crowd};
  Recorder large(&budget, &order, 1, 0);
  Recorder small(&budget, &order, 2, 0);
  EXPECT_EQ(budget.Reserve(50, {&large, 0, 0, &busy[0]}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(30, {&large, 0, 0, &busy[1]}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(15, {&large, 0, 0, &fresh}), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(1, {&small, 0, 0, &later}), Outcome::kWaiting) << "behind the large one";
  budget.Release(30, &busy[1]);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(ByteBudgetTest, ALargeRequestOfAnIdlePeerIsNotPassedByABusyOneForEver) {
  ByteBudget budget(120, 100);
  std::vector<int> order;
  ByteBudget::Peer crowd;
  ByteBudget::Peer modest;
  std::vector<ByteBudget::Account> many(50, ByteBudget::Account{.of = &crowd});
  ByteBudget::Account idle = {.of = &modest};
  Recorder small(&budget, &order, 1, 0);
  Recorder large(&budget, &order, 2, 0);
  for (int i = 0; i < 45; ++i) {
    ASSERT_EQ(budget.Reserve(2, {&small, 0, 0, &many[i]}), Outcome::kReserved) << i;
  }
  EXPECT_EQ(budget.Reserve(30, {&large, 0, 0, &idle}), Outcome::kWaiting);
  for (ByteBudget::Account& account : many) {
    EXPECT_EQ(budget.Reserve(1, {&small, 0, 0, &account}), Outcome::kWaiting);
  }
  // The crowd's waiters would take whatever the crowd gives back.
  for (int i = 0; i < 45 && order.empty(); ++i) budget.Release(2, &many[i]);
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order[0], 2) << "the crowd's waiters went first";
}

TEST(ByteBudgetTest, WhoDoesNotReadHoldsUpNobodyAndWaitsBehindAll) {
  ByteBudget budget(100, 100);
  std::vector<int> order;
  ByteBudget::Account unread[3];
  ByteBudget::Account reader;
  Recorder again(&budget, &order, 1, 0);
  Recorder large(&budget, &order, 2, 0);
  Recorder small(&budget, &order, 3, 0);
  EXPECT_EQ(budget.Reserve(40, {&again, 0, 0, &unread[0]}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(70, {&large, 0, 0, &unread[1]}), Outcome::kWaiting);
  // The large one might be served soon: this one does not pass it.
  EXPECT_EQ(budget.Reserve(10, {&small, 0, 0, &reader}), Outcome::kWaiting);
  budget.Stalled(&unread[0]);
  EXPECT_EQ(order, (std::vector<int>{3}));
  EXPECT_EQ(budget.Reserve(10, {&small, 0, 0, &reader}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(1, {&again, 0, 0, &unread[0]}), Outcome::kWaiting);
  budget.Release(10, &reader);
  budget.Release(10, &reader);
  EXPECT_EQ(order, (std::vector<int>{3, 1})) << "no other can be served";
  budget.Release(40, &unread[0]);
  EXPECT_EQ(order, (std::vector<int>{3, 1})) << "one byte is in flight";
  budget.Release(1, &unread[0]);
  EXPECT_EQ(order, (std::vector<int>{3, 1, 2}));
}

TEST(ByteBudgetTest, ALargeRequestLeavesRoomForSmallOnes) {
  ByteBudget budget(100, 100);
  std::vector<int> order;
  ByteBudget::Account unread[2];
  ByteBudget::Account reader;
  Recorder large(&budget, &order, 1, 0);
  Recorder small(&budget, &order, 2, 0);
  EXPECT_EQ(budget.Reserve(300, {&large, 0, 0, &unread[0]}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(5, {&small, 0, 0, &reader}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(300, {&large, 0, 0, &unread[1]}), Outcome::kWaiting) << "one at a time";
  budget.Stalled(&unread[0]);
  for (int i = 0; i < 100; ++i) {
    budget.Release(5, &reader);
    ASSERT_EQ(budget.Reserve(5, {&small, 0, 0, &reader}), Outcome::kReserved);
  }
  budget.Release(5, &reader);
  EXPECT_TRUE(order.empty());
  budget.Release(300, &unread[0]);
  EXPECT_EQ(order, (std::vector<int>{1}));
  budget.Release(300, &unread[1]);
  EXPECT_EQ(budget.in_flight(), 0u);
}

TEST(ByteBudgetTest, StalledConnectionsLoseMoreThanHalfIfOthersWait) {
  ByteBudget budget(100, 100);
  std::vector<int> order;
  std::vector<std::string> shed;
  budget.SetShed([&shed](const std::string& peer) { shed.push_back(peer); });
  ByteBudget::Account most = {.peer = "most"};
  ByteBudget::Account less = {.peer = "less"};
  ByteBudget::Account reader;
  Recorder waiter(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(40, {&waiter, 0, 0, &most}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(20, {&waiter, 0, 0, &less}), Outcome::kReserved);
  budget.Stalled(&most);
  budget.Stalled(&less);
  budget.Expire(1);
  budget.Expire(1 + 2 * ByteBudget::kShedNs);
  EXPECT_TRUE(shed.empty()) << "nobody waits";
  EXPECT_EQ(budget.Reserve(50, {&waiter, 0, 0, &reader}), Outcome::kWaiting);
  budget.Expire(3 * ByteBudget::kShedNs);
  EXPECT_TRUE(shed.empty());
  budget.Expire(4 * ByteBudget::kShedNs);
  EXPECT_EQ(shed, (std::vector<std::string>{"most"}));
}

TEST(ByteBudgetTest, SlowConnectionsThatTakeTheirAnswersKeepThem) {
  ByteBudget budget(100, 100);
  std::vector<int> order;
  std::vector<std::string> shed;
  budget.SetShed([&shed](const std::string& peer) { shed.push_back(peer); });
  ByteBudget::Account slow = {.peer = "slow"};
  ByteBudget::Account reader;
  Recorder waiter(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(60, {&waiter, 0, 0, &slow}), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(90, {&waiter, 0, 0, &reader}), Outcome::kWaiting);
  for (int i = 1; i <= 10; ++i) {
    budget.Stalled(&slow);
    budget.Expire(i * ByteBudget::kShedNs / 2);
    budget.Release(1, &slow);
  }
  EXPECT_TRUE(shed.empty());
}

TEST(ByteBudgetTest, NeverOverTheLimitWithManyThreads) {
  class Blocking final : public ByteBudget::Waiter {
   public:
    void Granted() override { granted.store(true); }
    void Expired() override {}
    std::atomic<bool> granted{false};
  };
  ByteBudget budget(64, 64);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t bytes = 1 + (i * 7 + t) % 40;
        Blocking waiter;
        if (budget.Reserve(bytes, {&waiter}) == Outcome::kWaiting) {
          while (!waiter.granted.load()) std::this_thread::yield();
        }
        if (budget.in_flight() > 64) over.store(true);
        budget.Release(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(over.load());
  EXPECT_EQ(budget.in_flight(), 0u);
}

}  // namespace byte_budget_test
}  // namespace hotbed
