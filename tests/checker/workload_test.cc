#include "tests/checker/workload.h"

#include <cstdlib>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/checker/journal.h"
#include "tests/common/fault_file_system.h"

namespace hotbed::checker {
namespace workload_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WorkloadTest, AStepIsAFunctionOfSeedClientAndStep) {
  const Workload workload({});
  StepBatch a, b, c;
  workload.Fill(1, 7, &a);
  workload.Fill(1, 7, &b);
  workload.Fill(2, 7, &c);
  EXPECT_EQ(a.parts[0].ids, b.parts[0].ids);
  EXPECT_EQ(a.parts[1].gradients, b.parts[1].gradients);
  EXPECT_NE(a.parts[0].ids, c.parts[0].ids);
}

TEST(WorkloadTest, GradientsAddUpToTheLedger) {
  WorkloadOptions options;
  options.rows = 50;
  const Workload workload(options);
  Ledger ledger(&workload, 0, options.clients);
  std::vector<float> sums(workload.tables() * options.rows * options.dim);
  StepBatch batch;
  for (uint32_t client = 0; client < options.clients; ++client) {
    for (uint64_t step = 1; step <= 20; ++step) {
      ledger.Add(client, step);
      workload.Fill(client, step, &batch);
      for (uint32_t t = 0; t < workload.tables(); ++t) {
        for (size_t i = 0; i < batch.parts[t].rows.size(); ++i) {
          for (uint32_t k = 0; k < options.dim; ++k) {
            sums[(t * options.rows + batch.parts[t].rows[i]) * options.dim + k] +=
                batch.parts[t].gradients[i * options.dim + k];
          }
        }
      }
    }
  }
  for (uint32_t t = 0; t < workload.tables(); ++t) {
    for (uint64_t row = 0; row < options.rows; ++row) {
      for (uint32_t client = 0; client < options.clients; ++client) {
        for (uint32_t k = 0; k < kColumns; ++k) {
          EXPECT_EQ(sums[(t * options.rows + row) * options.dim + client * kColumns + k],
                    ledger.Of(t, row, client)[k]);
        }
      }
    }
  }
}

TEST(WorkloadTest, ALostAndADoubledStepAreNamed) {
  const Workload workload({});
  StepBatch batch;
  workload.FillRows(0, 123, &batch);
  const uint64_t row = batch.parts[1].rows[3];
  Ledger want(&workload, 0, 1), lost(&workload, 0, 1), doubled(&workload, 0, 1);
  for (uint64_t step = 1; step <= 300; ++step) {
    want.Add(0, step);
    if (step != 123) lost.Add(0, step);
    doubled.Add(0, step);
  }
  doubled.Add(0, 123);
  EXPECT_THAT(Explain(workload, 1, row, 0, 300, want.Of(1, row, 0), lost.Of(1, row, 0)),
              HasSubstr("step 123 lost"));
  EXPECT_THAT(Explain(workload, 1, row, 0, 300, want.Of(1, row, 0), doubled.Of(1, row, 0)),
              HasSubstr("step 123 applied twice"));
}

TEST(WorkloadTest, TransfersAddUpToNothingOverTheTableAndOverPairs) {
  WorkloadOptions options;
  options.rows = 50;
  options.tables = *ParseTableKinds("r2");
  const Workload workload(options);
  Ledger ledger(&workload, 0, 1);
  for (uint64_t step = 1; step <= 100; ++step) ledger.Add(0, step);
  int64_t moved = 0;
  int64_t far = 0;
  for (uint64_t row = 0; row < options.rows; row += 2) {
    EXPECT_EQ(ledger.Of(0, row, 0)[kPairColumn] + ledger.Of(0, row + 1, 0)[kPairColumn], 0);
    for (const uint64_t r : {row, row + 1}) {
      moved += std::abs(ledger.Of(0, r, 0)[kPairColumn]) + std::abs(ledger.Of(0, r, 0)[kFarColumn]);
      far += ledger.Of(0, r, 0)[kFarColumn];
    }
  }
  EXPECT_EQ(far, 0);
  EXPECT_GT(moved, 100);
}

TEST(WorkloadTest, TableKindsAreTold) {
  const auto kinds = ParseTableKinds("log,r2-hashed,r3,dp");
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  WorkloadOptions options;
  options.tables = *kinds;
  const Workload workload(options);
  EXPECT_EQ(workload.Table(0).durability, Durability::kLog);
  EXPECT_EQ(workload.Table(1).durability, Durability::kReplicated);
  EXPECT_EQ(workload.Table(1).replicas, 2);
  EXPECT_TRUE(workload.Table(1).hashed);
  EXPECT_EQ(workload.Table(2).replicas, 3);
  EXPECT_TRUE(workload.Table(3).data_parallel);
  for (uint32_t t = 0; t < workload.tables(); ++t) {
    EXPECT_TRUE(ValidateTableSpec(workload.Table(t)).ok()) << ValidateTableSpec(workload.Table(t));
  }
  EXPECT_THAT(ParseTableKinds("log,r4").status().message(), HasSubstr("\"r4\""));
}

TEST(JournalTest, OpenStepsAreThoseWithoutAResult) {
  FaultFileSystem files(1);
  {
    auto journal = *Journal::Open("/j", &files);
    for (uint64_t step = 1; step <= 4; ++step) ASSERT_TRUE(journal->Intend(step).ok());
    ASSERT_TRUE(journal->Applied(1).ok());
    ASSERT_TRUE(journal->Applied(3).ok());
  }
  auto journal = *Journal::Open("/j", &files);
  EXPECT_EQ(journal->last_step(), 4);
  EXPECT_THAT(journal->open_steps(), ElementsAre(2, 4));
}

TEST(JournalTest, ATornLineIsCut) {
  FaultFileSystem files(1);
  ASSERT_TRUE(files.WriteAtomically("/j", "intent 1\napplied 1\nintent 2").ok());
  auto journal = *Journal::Open("/j", &files);
  EXPECT_EQ(journal->last_step(), 1);
  EXPECT_THAT(journal->open_steps(), IsEmpty());
  ASSERT_TRUE(journal->Intend(2).ok());
  EXPECT_EQ((*Journal::Open("/j", &files))->last_step(), 2);
}

TEST(JournalTest, AnIntentSurvivesAPowerLoss) {
  FaultFileSystem files(7);
  ASSERT_TRUE((*Journal::Open("/j", &files))->Intend(1).ok());
  files.Crash();
  EXPECT_THAT((*Journal::Open("/j", &files))->open_steps(), ElementsAre(1));
}

}  // namespace workload_test
}  // namespace hotbed::checker
