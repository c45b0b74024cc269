#include "server/peers/transfer_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hotbed {
namespace transfer_budget_test {

using Kind = TransferBudget::Kind;

struct FakeReader final : TransferBudget::Reader {
  bool TryKeep() override { return alive; }
  void GoOn() override { ++told; }
  void LetGo() override { ++let_go; }
  bool alive = true;
  int told = 0;
  int let_go = 0;
};

TEST(TransferBudgetTest, RefusesRecordsBeyondTheirLimitUntilSomeAreLetGo) {
  const auto budget = std::make_shared<TransferBudget>(100, 100);
  auto first = budget->Allocate(Kind::kLog, 60);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 8, 0u);
  EXPECT_EQ(budget->Allocate(Kind::kLog, 41), nullptr);
  const auto second = budget->Allocate(Kind::kLog, 40);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(budget->log_bytes(), 100u);
  first.reset();
  EXPECT_EQ(budget->log_bytes(), 40u);
  EXPECT_EQ(budget->rows_bytes(), 0u);
}

TEST(TransferBudgetTest, TakesOneRecordThatIsLargerThanAll) {
  const auto budget = std::make_shared<TransferBudget>(100, 100);
  const auto large = budget->Allocate(Kind::kLog, 1000);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(budget->Allocate(Kind::kLog, 1), nullptr);
}

TEST(TransferBudgetTest, HoldsReadersWhileRowsAreTooManyAndTellsEachOnce) {
  const auto budget = std::make_shared<TransferBudget>(100, 100);
  FakeReader reader, dead, gone;
  auto rows = budget->Allocate(Kind::kRows, 80);
  EXPECT_TRUE(budget->MayRead(&reader));
  auto more = budget->Allocate(Kind::kRows, 80);  // what is here already is never refused
  ASSERT_NE(more, nullptr);
  EXPECT_FALSE(budget->MayRead(&reader));
  EXPECT_FALSE(budget->MayRead(&dead));
  EXPECT_FALSE(budget->MayRead(&gone));
  dead.alive = false;
  budget->Forget(&gone);
  more.reset();
  EXPECT_EQ(reader.told, 1);
  EXPECT_EQ(reader.let_go, 1);
  EXPECT_EQ(dead.told, 0);
  EXPECT_EQ(dead.let_go, 0);
  EXPECT_EQ(gone.told, 0);
  rows.reset();
  EXPECT_EQ(reader.told, 1);
  EXPECT_EQ(budget->rows_bytes(), 0u);
}

TEST(TransferBudgetTest, OutlivesItsOwner) {
  auto budget = std::make_shared<TransferBudget>(100, 100);
  auto memory = budget->Allocate(Kind::kLog, 8);
  const std::weak_ptr<TransferBudget> seen = budget;
  budget.reset();
  memory.get()[7] = 1;
  EXPECT_FALSE(seen.expired());
  memory.reset();
  EXPECT_TRUE(seen.expired());
}

// Whoever is told to wait is told to go on: no matter how waiting and letting go meet.
TEST(TransferBudgetTest, LosesNoReaderBetweenThreads) {
  const auto budget = std::make_shared<TransferBudget>(100, 100);
  struct Counter final : TransferBudget::Reader {
    bool TryKeep() override { return true; }
    void GoOn() override { told.fetch_add(1); }
    void LetGo() override {}
    std::atomic<int> told{0};
  };
  for (int round = 0; round < 2000; ++round) {
    Counter reader;
    auto rows = budget->Allocate(Kind::kRows, 100);
    std::thread other([moved = std::move(rows)]() mutable { moved.reset(); });
    const bool may = budget->MayRead(&reader);
    other.join();
    ASSERT_EQ(reader.told.load(), may ? 0 : 1) << "round " << round;
  }
}

}  // namespace transfer_budget_test
}  // namespace hotbed
