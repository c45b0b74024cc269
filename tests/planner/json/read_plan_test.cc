#include "planner/json/read_plan.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "planner/json/write_plan.h"
#include "tests/planner/json/json_cases.h"

namespace hotbed {
namespace read_plan_test {

TEST(ReadPlan, ReadsWhatIsWritten) {
  const std::string text = WritePlan(FullPlan());
  const PlanResult<PlannerOutput> read = ReadPlan(text);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read.value() == FullPlan()) << text;
  EXPECT_EQ(WritePlan(read.value()), text);
}

TEST(WritePlan, KeysStandInTheirOrder) {
  const std::string text = WritePlan(FullPlan());
  size_t at = 0;
  for (const char* key : {"\"strategy\"",
                          "\"tables\"",
                          "\"name\"",
                          "\"sharding\"",
                          "\"shards\"",
                          "\"server\"",
                          "\"role\"",
                          "\"rows\"",
                          "\"columns\"",
                          "\"elements\"",
                          "\"weight_bytes\"",
                          "\"bytes\"",
                          "\"kernel\"",
                          "\"perf\"",
                          "\"servers\"",
                          "\"elements\"",
                          "\"device\"",
                          "\"host\"",
                          "\"spill\"",
                          "\"groups\"",
                          "\"dim\"",
                          "\"combiner\"",
                          "\"row_offsets\"",
                          "\"row_base\"",
                          "\"features\"",
                          "\"feature_offsets\"",
                          "\"outputs\"",
                          "\"feature\"",
                          "\"width\"",
                          "\"position\"",
                          "\"cost\"",
                          "\"max_server_ms\"",
                          "\"lower_bound_ms\"",
                          "\"gap\"",
                          "\"binding\"",
                          "\"moves\"",
                          "\"from\"",
                          "\"to\"",
                          "\"reason\"",
                          "\"cuts\"",
                          "\"context_hash\""}) {
    const size_t found = text.find(key, at);
    ASSERT_NE(found, std::string::npos) << key << " in\n" << text;
    at = found + 1;
  }
}

TEST(WritePlan, LeavesOutWhatAPlanDoesNotHave) {
  PlannerOutput plan = FullPlan();
  plan.strategy = "basic";
  plan.cuts.clear();
  plan.servers[0].row_base.reset();
  plan.servers[0].perf.reset();
  plan.tables[0].perf.reset();
  const std::string text = WritePlan(plan);
  for (const char* key : {"cuts", "row_base", "feature_offsets", "perf"}) {
    EXPECT_EQ(text.find(key), std::string::npos) << key;
  }
}

TEST(WritePlanError, HasWhatThereIs) {
  PlanError error{PlanErrorKind::kInsufficientStorage, "a \"b\""};
  EXPECT_EQ(WritePlanError(error),
            "{\"error\": {\"kind\": \"insufficient_storage\", \"message\": \"a \\\"b\\\"\"}}\n");
  error.table = "t\xff";  // no UTF-8
  error.limit = 5;
  error.missing_bytes = 7;
  EXPECT_EQ(WritePlanError(error),
            "{\"error\": {\"kind\": \"insufficient_storage\", \"table\": \"t\xef\xbf\xbd\", "
            "\"limit\": 5, "
            "\"missing_bytes\": 7, \"message\": \"a \\\"b\\\"\"}}\n");
}

TEST(PrettyJson, BreaksWhatIsTooLong) {
  const PlanJson json = {{"short", {1, 2}}, {"long", std::vector<int>(60, 7)}};
  const std::string text = PrettyJson(json);
  EXPECT_EQ(PlanJson::parse(text), json);
  EXPECT_NE(text.find("  \"short\": [1, 2],\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    7,\n"), std::string::npos) << text;
}

TEST(ReadPlan, IsStrict) {
  const auto error = [](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(WritePlan(FullPlan()), {{from, to}});
    const auto read = ReadPlan(text);
    EXPECT_FALSE(read.ok()) << from;
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(error("\"server\": \"s1\"", "\"server\": \"s5\""),
            "tables[0].shards[1].server: no server is named 's5'");
  EXPECT_EQ(error("\"rows\": [0, 10], \"columns\": [0, 4], \"elements\"",
                  "\"rows\": [10, 10], \"columns\": [0, 4], \"elements\""),
            "tables[0].shards[0].rows: expected [first, limit] with first below limit");
  EXPECT_EQ(error("\"role\": \"backup\"", "\"role\": \"backups\""),
            "tables[0].shards[1].role: unknown value 'backups'; the nearest known one is 'backup'");
  EXPECT_EQ(error("\"gap\"", "\"gaps\""),
            "cost.gaps: unknown key 'gaps'; the nearest known one is 'gap'");
  EXPECT_EQ(error("\"2\":", "\"two\":"), "cuts.two: expected the number of a feature");
}

TEST(ReadPlan, ServersMayBeLeftOut) {
  const auto read = ReadPlan(R"({"tables": [{"name": "t", "shards": [
      {"server": "b", "rows": [0, 1], "columns": [0, 1]},
      {"server": "a", "rows": [1, 2], "columns": [0, 1]},
      {"server": "b", "rows": [2, 3], "columns": [0, 1]}]}]})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().servers.size(), 2u);
  EXPECT_EQ(read.value().servers[0].name, "b");
  EXPECT_EQ(read.value().tables[0].ranges[2].server, 0u);
}

}  // namespace read_plan_test
}  // namespace hotbed
