#include "tests/parity/case_file.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed::parity {
namespace case_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTables[] = R"("tables": [{"name": "t", "rows": 3, "dim": 2}])";

absl::StatusOr<ParityCase> Read(const std::string& text, absl::Status* tables = nullptr,
                                const std::string& dir = ".") {
  absl::Status status;
  auto out = ReadCase(text, dir, &status);
  if (tables != nullptr) *tables = status;
  return out;
}

std::string Refusal(const std::string& rest) {
  const auto out = Read(absl::StrCat("{", kTables, ", ", rest, "}"));
  return out.ok() ? "read" : std::string(out.status().message());
}

TEST(CaseFile, ReadsWhatAStepMayHave) {
  const auto out = Read(absl::StrCat("{", kTables, R"(,
    "features": [{"feature": "f", "table": "t", "pooling": "max", "output": "o"}],
    "options": {"pooling-at": "client", "row_wire": "bf16", "accumulate": 2, "first_step": 7},
    "steps": [{"batch": {"keys": ["f"], "offsets": [0, 2], "ids": [1, -1], "weights": [0.5, 2]},
               "gradients": {"values": [[1, "nan"]], "sequences": {"o": [["-inf", 3]]}},
               "lr": 0.25, "clip_global_norm": 1, "trainer": 2, "step": 9, "weights": ["t"],
               "backward": "gradients", "expect_error": "boom"},
              {"pull": {"table": "t", "ids": [18446744073709551615]}, "weights": {"t": [2, 0]}},
              {"restart": "s0", "how": "stop"}, {"disconnect": 3}],
    "weights": {"t": "all"}})"));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->tables[0].asked.spec.dim, 2u);
  EXPECT_EQ(out->features[0].pooling, Pooling::kMax);
  EXPECT_EQ(out->options.pooling_at, PoolingPlace::kClient);
  EXPECT_EQ(out->options.row_wire, RowType::kBf16);
  EXPECT_EQ(out->options.accumulate, 2u);
  EXPECT_EQ(out->options.first_step, 7u);
  ASSERT_EQ(out->steps.size(), 4u);
  const CaseStep& step = out->steps[0];
  EXPECT_TRUE(step.batch.has_offsets);
  EXPECT_THAT(step.batch.offsets, ElementsAre(0, 2));
  EXPECT_THAT(step.batch.ids, ElementsAre(1, std::numeric_limits<uint64_t>::max()));
  EXPECT_THAT(step.batch.weights, ElementsAre(0.5f, 2.0f));
  EXPECT_TRUE(std::isnan(step.gradients->values.values[1]));
  EXPECT_EQ(step.gradients->sequences.at("o").values[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(step.learning_rate, 0.25f);
  EXPECT_EQ(step.trainer, 2u);
  EXPECT_EQ(step.step, 9u);
  EXPECT_EQ(step.backward, BackwardWay::kGradients);
  EXPECT_TRUE(step.expects_error);
  EXPECT_TRUE(step.weights[0].second.all);
  EXPECT_THAT(out->steps[1].calls[0].ids, ElementsAre(std::numeric_limits<uint64_t>::max()));
  EXPECT_THAT(out->steps[1].weights[0].second.ids, ElementsAre(2, 0));
  EXPECT_TRUE(out->steps[2].gently);
  EXPECT_EQ(out->steps[3].kind, StepKind::kDisconnect);
  EXPECT_EQ(out->steps[3].trainer, 3u);
  EXPECT_TRUE(out->weights[0].second.all);
}

TEST(CaseFile, ArraysComeFromFilesBesideTheCase) {
  const std::string dir = absl::StrCat(::testing::TempDir(), "/case_file_", getpid());
  std::filesystem::create_directories(dir);
  const auto write = [&](const std::string& name, const NpyArray& array) {
    std::ofstream(absl::StrCat(dir, "/", name), std::ios::binary) << FormatNpy(array);
  };
  write("i4.npy", MakeNpy<int32_t>({2}, std::vector<int32_t>{-1, 7}));
  write("u4.npy", MakeNpy<uint32_t>({1}, std::vector<uint32_t>{0xffffffffu}));
  write("f8.npy", MakeNpy<double>({3, 2}, std::vector<double>{1, 2, 3, 4, 5, 0.1}));
  const auto pull = [&](const std::string& file) {
    return Read(
        absl::StrCat(R"({"tables": [{"name": "t", "rows": 3, "dim": 2, "weights": "f8.npy"}],
                                 "steps": [{"pull": {"table": "t", "ids": ")",
                     file, R"("}}]})"),
        nullptr, dir);
  };
  const auto i4 = pull("i4.npy");
  ASSERT_TRUE(i4.ok()) << i4.status();
  EXPECT_THAT(i4->steps[0].calls[0].ids, ElementsAre(std::numeric_limits<uint64_t>::max(), 7));
  EXPECT_THAT(i4->tables[0].weights->rows.shape, ElementsAre(3, 2));
  EXPECT_EQ(i4->tables[0].weights->rows.values[5], 0.1f);
  const auto u4 = pull("u4.npy");
  ASSERT_TRUE(u4.ok()) << u4.status();
  EXPECT_THAT(u4->steps[0].calls[0].ids, ElementsAre(0xffffffffu));
  EXPECT_THAT(std::string(pull("f8.npy").status().message()), HasSubstr("floats lose ids"));
  EXPECT_THAT(std::string(pull("no.npy").status().message()), HasSubstr("no.npy"));
  std::filesystem::remove_all(dir);
}

TEST(CaseFile, TablesThatAreRefusedAreToldApart) {
  absl::Status tables;
  const auto out =
      Read(R"({"tables": [{"name": "t", "rows": 3, "dim": 0}], "expect_error": "dim"})", &tables);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(std::string(tables.message()), HasSubstr("dim"));
  EXPECT_TRUE(out->expects_error);
}

TEST(CaseFile, RefusalsNameTheField) {
  EXPECT_THAT(Refusal(R"("step": [])"), HasSubstr("nearest known one is 'steps'"));
  EXPECT_THAT(Refusal(R"("steps": [{}])"), HasSubstr("steps[0]: is one of: batch, push"));
  EXPECT_THAT(Refusal(R"("steps": [{"batch": {"keys": [], "ids": []}}])"),
              HasSubstr("steps[0].batch: needs lengths or offsets"));
  EXPECT_THAT(Refusal(R"("steps": [{"batch": {"keys": [], "lengths": [-1], "ids": []}}])"),
              HasSubstr("steps[0].batch.lengths[0]: a length is 0..4294967295"));
  EXPECT_THAT(Refusal(R"("steps": [{"batch": {"keys": [], "lengths": [1], "ids": [1.5]}}])"),
              HasSubstr("steps[0].batch.ids[0]: expected an integer, found 1.5"));
  EXPECT_THAT(Refusal(R"("steps": [{"pull": {"table": "t", "ids": []}, "lr": "x"}])"),
              HasSubstr("steps[0].lr"));
  EXPECT_THAT(
      Refusal(R"("steps": [{"push": {"table": "t", "ids": [], "gradients": [[1], [1, 2]]}}])"),
      HasSubstr("steps[0].push[0].gradients"));
  EXPECT_THAT(Refusal(R"("features": [{"feature": "f", "table": "t", "pooling": "median"}])"),
              HasSubstr("'median' is not one of sum, mean, max, none"));
  EXPECT_THAT(Refusal(R"("options": {"accumulate": 0})"), HasSubstr("options.accumulate"));
  EXPECT_THAT(Refusal(R"("weights": 3)"), HasSubstr("weights"));
  EXPECT_NE(Refusal(R"("about": "a case")"), "");
  EXPECT_EQ(Refusal(R"("weights": ["t"])"), "read");
}

}  // namespace case_file_test
}  // namespace hotbed::parity
