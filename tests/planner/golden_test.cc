// Every file of tests/planner/cases/ is one problem with the answer that is expected:
//
//   {"about": "what it shows", "input": {...}, "expect": {a plan, or {"error": ...}}}
//
// or, for what is no JSON, "input_text" with the text in place of "input". `planner_golden_test
// --rewrite` writes the answers of this build into the files (look at the difference). Each plan is
// also checked for what must hold of any plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/compute_plan.h"
#include "planner/json/parse_json.h"
#include "planner/json/read_input.h"
#include "planner/json/read_plan.h"
#include "planner/json/write_plan.h"
#include "tests/planner/plan_fault.h"

namespace hotbed {
namespace golden_test {

bool rewrite = false;

std::vector<std::string> CaseFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HOTBED_PLANNER_CASES)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The answer to one problem, as `hotbed plan compute -o json` gives it.
std::string Answer(const std::string& input_text) {
  const PlanResult<PlannerInput> input = ReadPlannerInput(input_text);
  if (!input.ok()) return WritePlanError(input.error());
  const PlanResult<PlannerOutput> plan = ComputePlan(input.value());
  if (!plan.ok()) return WritePlanError(plan.error());
  EXPECT_EQ(PlanFault(input.value(), plan.value()), "");
  const std::string text = WritePlan(plan.value());
  const PlanResult<PlannerOutput> again = ReadPlan(text);
  if (!again.ok()) {
    ADD_FAILURE() << again.error().message;
  } else {
    EXPECT_EQ(WritePlan(again.value()), text);
    EXPECT_TRUE(again.value() == plan.value()) << "a plan does not read back as it was";
  }
  return text;
}

// The first line that differs, of both; plans are too long to be printed whole.
std::string FirstDifference(const std::string& expected, const std::string& found) {
  if (expected == found) return "";
  const std::vector<std::string> a = absl::StrSplit(expected, '\n');
  const std::vector<std::string> b = absl::StrSplit(found, '\n');
  size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  return absl::StrCat("expected: ", line < a.size() ? a[line] : "the end",
                      "\nfound:    ", line < b.size() ? b[line] : "the end");
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, GivesTheExpectedAnswer) {
  const PlanResult<PlanJson> parsed = ParseJson(ReadFile(GetParam()));
  ASSERT_TRUE(parsed.ok()) << GetParam() << ": " << parsed.error().message;
  PlanJson file = parsed.value();
  ASSERT_TRUE(file.contains("about")) << GetParam() << " does not say what it is about";
  const std::string input =
      file.contains("input_text") ? file["input_text"].get<std::string>() : file.at("input").dump();
  const std::string found = Answer(input);
  if (rewrite) {
    file["expect"] = PlanJson::parse(found);
    std::ofstream(GetParam()) << PrettyJson(file);
    return;
  }
  ASSERT_TRUE(file.contains("expect")) << GetParam() << " expects nothing; run with --rewrite";
  EXPECT_EQ(FirstDifference(PrettyJson(file["expect"]), found), "") << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(CaseFiles()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<uint8_t>(c)); }, '_');
  return name;
});

}  // namespace golden_test

void SetRewrite(bool value) { golden_test::rewrite = value; }

}  // namespace hotbed

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  hotbed::SetRewrite(argc > 1 && std::strcmp(argv[1], "--rewrite") == 0);
  return RUN_ALL_TESTS();
}
