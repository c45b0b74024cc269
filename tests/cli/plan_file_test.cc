#include "cli/shards/plan_file.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run_cli.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace plan_file_test {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
};

Answer Ask(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  Answer answer;
  answer.code = RunCli(args, &out, &err);
  answer.out = out.str();
  answer.err = err.str();
  return answer;
}

// Writes `text` to a file of the test's folder and returns its path.
std::string Saved(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/plan_file_test_" + name;
  std::ofstream(path) << text;
  return path;
}

std::string Input(int servers, int rows) {
  nlohmann::json input = {{"tables", nlohmann::json::array()},
                          {"topology", {{"servers", nlohmann::json::array()}}},
                          {"planner", {{"strategy", "basic"}}}};
  for (int i = 0; i < 3; ++i) {
    input["tables"].push_back(
        {{"name", "t" + std::to_string(i)}, {"rows", rows}, {"dim", 4}, {"optimizer", "sgd"}});
  }
  for (int i = 0; i < servers; ++i) {
    input["topology"]["servers"].push_back(
        {{"name", "s" + std::to_string(i)}, {"host_bytes", 1000}});
  }
  return input.dump();
}

TEST(PlanCompute, AnswersInEachForm) {
  const std::string path = Saved("input.json", Input(2, 10));
  const Answer json = Ask({"plan", "compute", "--input", path, "-o", "json"});
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out)["servers"][0]["elements"], 80);
  EXPECT_EQ(Ask({"-o", "json", "plan", "compute", "--input", path}).out, json.out);
  EXPECT_THAT(Ask({"plan", "compute", "--input", path}).out,
              StartsWith("Plan by strategy basic: 3 tables in 3 shards on 2 servers"));
  EXPECT_THAT(Ask({"plan", "compute", "--input", path, "-o", "svg"}).out, StartsWith("<svg"));
}

TEST(PlanCompute, RefusalsAreOnStandardOutputWithStatus1) {
  const Answer full =
      Ask({"plan", "compute", "--input", Saved("full.json", Input(2, 100)), "-o", "json"});
  EXPECT_EQ(full.code, 1);
  const nlohmann::json error = nlohmann::json::parse(full.out)["error"];
  EXPECT_EQ(error["kind"], "insufficient_storage");
  EXPECT_EQ(error["missing_bytes"], 2200);
  const std::string garbage = Saved("garbage.json", "}{");
  const Answer wrong = Ask({"plan", "compute", "--input", garbage, "-o", "json"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_EQ(nlohmann::json::parse(wrong.out)["error"]["kind"], "input");
  EXPECT_THAT(Ask({"plan", "compute", "--input", garbage}).out, StartsWith("No plan: input\n"));
}

TEST(PlanCompute, AFileThatIsNotThere) {
  const Answer none = Ask({"plan", "compute", "--input", "/nowhere/input.json"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("cannot read '/nowhere/input.json'"));
  EXPECT_EQ(Ask({"plan", "compute"}).code, 2) << "--input is needed";
}

TEST(PlanShowAndDiff, ReadStoredPlans) {
  const auto stored = [](const std::string& name, int servers) {
    const std::string input = Saved(name + ".input", Input(servers, 10));
    return Saved(name, Ask({"plan", "compute", "--input", input, "-o", "json"}).out);
  };
  const std::string two = stored("two.json", 2);
  const std::string three = stored("three.json", 3);
  std::ifstream file(two);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(Ask({"plan", "show", two, "-o", "json"}).out, text.str());
  EXPECT_THAT(Ask({"plan", "show", two}).out, StartsWith("Plan by strategy basic"));
  EXPECT_THAT(Ask({"plan", "show", two, "-o", "svg"}).out, EndsWith("</svg>\n"));
  EXPECT_THAT(Ask({"plan", "diff", two, three}).out, StartsWith("1 move of 160 B\n"));
  EXPECT_THAT(Ask({"plan", "diff", two, three, "-o", "svg"}).out, StartsWith("<svg"));
  const Answer moves = Ask({"plan", "diff", two, three, "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(moves.out)["moves"][0]["to"], "s2");
  const Answer wrong = Ask({"plan", "show", Saved("no_plan.json", "{\"tabels\": []}")});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("the nearest known one is 'tables'"));
}

}  // namespace plan_file_test
}  // namespace hotbed
