#include "tests/checker/read_check.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed::checker {
namespace read_check_test {

using ::testing::HasSubstr;

// Two clients, one bounded table.
class ReadCheckTest : public testing::Test {
 protected:
  ReadCheckTest() : workload_(Options()), ledger_(&workload_, 0, 2) {
    dir_ = absl::StrCat(testing::TempDir(), "/read-check-", getpid());
    const std::string make = absl::StrCat("rm -rf ", dir_, " && mkdir -p ", dir_);
    EXPECT_EQ(system(make.c_str()), 0);
    for (uint32_t c = 0; c < 2; ++c) {
      counts_.push_back(*Counts::Open(CountsPath(dir_, c), workload_));
    }
    check_ = std::make_unique<ReadCheck>(&workload_, 0, counts_[0].get(), dir_);
  }

  static WorkloadOptions Options() {
    WorkloadOptions options;
    options.clients = 2;
    options.rows = 64;
    options.dim = 2 * kColumns;
    options.tables = *ParseTableKinds("log");
    return options;
  }

  // A step of a client: started, in the table, acknowledged.
  void Push(uint32_t client, uint64_t step, bool acknowledged = true) {
    StepBatch batch;
    workload_.FillRows(client, step, &batch);
    counts_[client]->CountStarted(batch);
    ledger_.Add(client, step);
    if (acknowledged) counts_[client]->CountAcknowledged(batch);
  }

  // The content of the table in the rows to read.
  std::vector<std::vector<float>> Weights() const {
    std::vector<std::vector<float>> weights(1);
    for (const uint64_t row : check_->rows(0)) {
      for (uint32_t c = 0; c < 2; ++c) {
        for (const int64_t sum : ledger_.Of(0, row, c)) {
          weights[0].push_back(-static_cast<float>(sum));
        }
      }
    }
    return weights;
  }
  // The place of a column of the first row read that holds an add of the client.
  size_t CellOf(const std::vector<float>& weights, uint32_t client, uint32_t column) const {
    for (size_t i = 0; i < check_->rows(0).size(); ++i) {
      const size_t at = i * 2 * kColumns + client * kColumns;
      if (weights[at] != 0.0f) return at + column;
    }
    ADD_FAILURE() << "no row read has an add";
    return 0;
  }
  absl::Status ReadNow(bool strict = false) {
    check_->Begin(random_, strict);
    return check_->End(Weights(), nullptr);
  }

  const Workload workload_;
  Ledger ledger_;
  std::string dir_;
  std::vector<std::unique_ptr<Counts>> counts_;
  std::unique_ptr<ReadCheck> check_;
  Random random_{1};
};

TEST_F(ReadCheckTest, WhatIsInFlightMayBeThereOrNot) {
  for (uint64_t step = 1; step <= 50; ++step) {
    Push(0, step, step % 2 == 0);
    Push(1, step, step % 3 == 0);
    ASSERT_TRUE(ReadNow(/*strict=*/true).ok());
  }
}

TEST_F(ReadCheckTest, AnAcknowledgedAddThatIsMissingIsTold) {
  for (uint64_t step = 1; step <= 50; ++step) Push(0, step);
  check_->Begin(random_, false);
  auto weights = Weights();
  const size_t cell = CellOf(weights[0], 0, 0);
  const float tag = weights[0][cell + 3] / weights[0][cell];
  weights[0][cell] += 1;
  weights[0][cell + 3] += tag;
  EXPECT_THAT(check_->End(weights, nullptr).message(), HasSubstr("acknowledged before the pull"));
}

TEST_F(ReadCheckTest, AnotherClientsAcknowledgedAddMayBeMissingUnlessStrict) {
  for (uint64_t step = 1; step <= 50; ++step) Push(1, step);
  for (const bool strict : {false, true}) {
    check_->Begin(random_, strict);
    std::vector<std::vector<float>> nothing(1, std::vector<float>(64 * 2 * kColumns));
    EXPECT_EQ(check_->End(nothing, nullptr).ok(), !strict);
  }
}

TEST_F(ReadCheckTest, AnAddThatNobodyStartedIsTold) {
  for (uint64_t step = 1; step <= 50; ++step) Push(1, step);
  ledger_.Add(1, 50);
  EXPECT_THAT(ReadNow().message(), HasSubstr("adds found"));
}

TEST_F(ReadCheckTest, WhatWasSeenStaysSeen) {
  for (uint64_t step = 1; step <= 50; ++step) Push(1, step, /*acknowledged=*/false);
  const Random as_before = random_;
  ASSERT_TRUE(ReadNow().ok());
  random_ = as_before;  // the same rows
  check_->Begin(random_, false);
  std::vector<std::vector<float>> nothing(1, std::vector<float>(64 * 2 * kColumns));
  EXPECT_THAT(check_->End(nothing, nullptr).message(), HasSubstr("earlier pull"));
}

TEST_F(ReadCheckTest, ATornRowIsTold) {
  for (uint64_t step = 1; step <= 50; ++step) Push(1, step);
  check_->Begin(random_, false);
  auto weights = Weights();
  weights[0][CellOf(weights[0], 1, 3)] += 1;
  EXPECT_THAT(check_->End(weights, nullptr).message(), HasSubstr("torn or misrouted"));
}

TEST_F(ReadCheckTest, CountsOutliveTheirWriterAndAreRestored) {
  StepBatch batch;
  workload_.FillRows(0, 1, &batch);
  counts_[0]->CountStarted(batch);
  counts_[0]->Set(Progress::kErrors, 7);
  auto again = *Counts::Open(CountsPath(dir_, 0), workload_);
  const uint64_t row = batch.parts[0].rows[0];
  EXPECT_GE(again->started(0, row), 1);
  EXPECT_EQ(again->acknowledged(0, row), 0);
  again->Restore(batch, /*acknowledged=*/true);
  again->FinishRestore();
  EXPECT_EQ(again->started(0, row), again->acknowledged(0, row));
  EXPECT_EQ(again->progress(Progress::kErrors), 7);
}

}  // namespace read_check_test
}  // namespace hotbed::checker
