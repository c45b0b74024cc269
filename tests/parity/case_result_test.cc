#include "tests/parity/case_result.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/case_run.h"

namespace hotbed::parity {
namespace case_result_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CaseResult, InlineArraysAreNestedLists) {
  CaseResult result("", false);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(result.Array<float>("a", {2, 2}, {1.5f, nan, -1 / 0.0f, 0.1f}).dump(),
            R"([[1.5,"nan"],["-inf",0.10000000149011612]])");
  EXPECT_EQ(result.Array<uint64_t>("b", {1}, {std::numeric_limits<uint64_t>::max()}).dump(),
            "[18446744073709551615]");
  EXPECT_EQ(result.Array<float>("c", {2, 0}, {}).dump(), "[[],[]]");
}

TEST(CaseResult, FilesHoldTheArrays) {
  const std::string dir = absl::StrCat(::testing::TempDir(), "/case_result_", getpid());
  std::filesystem::create_directories(dir);
  CaseResult result(dir, false);
  EXPECT_EQ(result.Array<float>("x", {2}, {1, 2}), "x.npy");
  result.WriteJson({{"ok", true}});
  EXPECT_TRUE(result.status().ok()) << result.status();
  std::ifstream file(dir + "/x.npy", std::ios::binary);
  const auto array = ParseNpy(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(NpyValues<float>(*array), ElementsAre(1, 2));
  EXPECT_TRUE(std::filesystem::exists(dir + "/result.json"));
  std::filesystem::remove_all(dir);
  result.Array<float>("y", {1}, {1});
  EXPECT_FALSE(result.status().ok());
}

TEST(CaseResult, NamesAreSafeInFileNames) {
  EXPECT_EQ(InFileName("a/b c.d_e-1"), "a%2Fb%20c.d_e-1");
}

EmbeddingOutput Output() {
  EmbeddingOutput output;
  output.batch_size = 1;
  output.columns = 2;
  output.values = {1, -3};
  output.features.resize(2);
  output.features[0].name = "pooled";
  output.features[1].name = "seq";
  output.features[1].pooling = Pooling::kNone;
  output.features[1].sequence = {2, 4};
  return output;
}

TEST(StepGradients, LossesAndTheirGradients) {
  CaseGradients asked;
  asked.loss = LossKind::kSum;
  asked.scale = -1;
  auto out = GradientsOf(asked, Output());
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->loss, -4);
  EXPECT_THAT(out->values, ElementsAre(-1, -1));
  EXPECT_THAT(out->sequences[1], ElementsAre(-1, -1));
  asked.scale = 2;
  asked.loss = LossKind::kMean;
  out = GradientsOf(asked, Output());
  EXPECT_EQ(out->loss, 2);
  EXPECT_THAT(out->values, ElementsAre(0.5f, 0.5f));
  asked.loss = LossKind::kSquare;
  out = GradientsOf(asked, Output());
  EXPECT_EQ(out->loss, 30);
  EXPECT_THAT(out->values, ElementsAre(2, -6));
  EXPECT_THAT(out->sequences[1], ElementsAre(4, 8));
}

TEST(StepGradients, GivenOnesMustFit) {
  CaseGradients asked;
  asked.loss = LossKind::kGiven;
  asked.values.values = {1, 2};
  EXPECT_THAT(std::string(GradientsOf(asked, Output()).status().message()),
              HasSubstr("sequences.seq has 0 elements, the output has 2"));
  asked.sequences["seq"].values = {5, 6};
  EXPECT_TRUE(GradientsOf(asked, Output()).ok());
  asked.sequences["sea"].values = {};
  EXPECT_FALSE(GradientsOf(asked, Output()).ok());
  asked.sequences.erase("sea");
  asked.values.values = {1};
  EXPECT_THAT(std::string(GradientsOf(asked, Output()).status().message()),
              HasSubstr("values has 1 elements, the output has 2"));
}

}  // namespace case_result_test
}  // namespace hotbed::parity
