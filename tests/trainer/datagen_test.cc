// Goal: the generated data keeps the promises of its header: reachable AUC, a gap that no linear
// model closes, the same bytes for the same seed. Method: generate, score, and train a linear model
// on it.
#include "trainer/datagen.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/trainer/map_row_source.h"
#include "trainer/criteo_format.h"
#include "trainer/train_loop.h"

namespace hotbed {
namespace datagen_test {

TEST(DatagenTest, BestAucAndGapHoldForManySeeds) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::ostringstream out;
    const CriteoDatagenReport report = GenerateCriteo({.rows = 30000, .seed = seed}, &out).value();
    EXPECT_GE(report.auc_best, 0.80) << "seed " << seed;
    EXPECT_GE(report.auc_best - report.auc_linear, 0.04) << "seed " << seed;
    EXPECT_EQ(report.bytes, out.str().size());
    EXPECT_GT(report.positive_fraction, 0.15);
    EXPECT_LT(report.positive_fraction, 0.45);
  }
}

TEST(DatagenTest, SeedFixesTheBytes) {
  std::ostringstream a, b, c;
  ASSERT_TRUE(GenerateCriteo({.rows = 500, .seed = 9}, &a).ok());
  ASSERT_TRUE(GenerateCriteo({.rows = 500, .seed = 9}, &b).ok());
  ASSERT_TRUE(GenerateCriteo({.rows = 500, .seed = 10}, &c).ok());
  EXPECT_EQ(a.str(), b.str());
  EXPECT_NE(a.str(), c.str());
}

TEST(DatagenTest, EveryLineIsCriteo) {
  std::stringstream text;
  ASSERT_TRUE(GenerateCriteo({.rows = 300, .seed = 2}, &text).ok());
  Batch batch;
  batch.Reset(39);
  for (std::string line; std::getline(text, line);) {
    const absl::Status status = AppendCriteoLine(line, '\t', &batch);
    EXPECT_TRUE(status.ok()) << status << ": " << line;
  }
  EXPECT_EQ(batch.size(), 300u);
}

TEST(DatagenTest, ATrainedLinearModelStaysAtTheStatedBound) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/datagen_test_", getpid(), ".tsv");
  std::ofstream file(path);
  const CriteoDatagenReport report = GenerateCriteo({.rows = 60000, .seed = 3}, &file).value();
  file.close();
  DatasetOptions data{.path = path, .fields = 39, .held_out_fraction = 0.3};
  TrainOptions options;
  options.layout = CriteoLayout("l");
  options.shape = {.fields = 39, .dim = 1};  // no factors: a linear model
  options.bias_table = 0;
  options.bias_id = kBiasId;
  options.epochs = 2;
  options.learning_rate = 0.03f;
  MapRows rows;
  rows.dim = 1;
  rows.tables.resize(2);
  const auto opened = Dataset::Open(data).value();
  ASSERT_TRUE(Train(
                  options, *opened, 2,
                  [&](int) { return std::unique_ptr<RowSource>(new MapRowSource(&rows)); },
                  [](const TrainProgress&) {})
                  .ok());
  MapRowSource source(&rows);
  const EvalReport eval =
      Evaluate(options, *opened, Dataset::Part::kHeldOut, 0, 1, &source).value();
  EXPECT_LT(eval.auc, report.auc_linear + 0.01);
  EXPECT_GT(eval.auc, report.auc_linear - 0.05) << "the linear part is there to be learnt";
  std::remove(path.c_str());
}

TEST(DatagenTest, RefusesNoRowsAndAFullDisk) {
  std::ostringstream out;
  EXPECT_EQ(GenerateCriteo({.rows = 0}, &out).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream full("/dev/full");
  EXPECT_EQ(GenerateCriteo({.rows = 100000}, &full).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace datagen_test
}  // namespace hotbed
