#include "planner/json/constants_json.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "planner/compute_plan.h"
#include "planner/json/read_input.h"
#include "planner/json/write_plan.h"

namespace hotbed {
namespace constants_json_test {

std::string ErrorOf(const std::string& text) {
  const PlanResult<CostConstants> read = ReadConstants(text);
  return read.ok() ? "accepted" : read.error().message;
}

TEST(ConstantsJson, WrittenAndReadAgain) {
  CostConstants constants;
  double next = 0.1;
  for (double* const value :
       {&constants.gather_row_ns, &constants.update_row_ns, &constants.device_row_ns,
        &constants.spill_row_ns, &constants.segment_ns, &constants.host_bandwidth,
        &constants.network_bandwidth, &constants.spill_bandwidth, &constants.device_bandwidth,
        &constants.device_host_bandwidth}) {
    *value = next;
    next *= 3;
  }
  PlanJson json = ConstantsToJson(constants);
  EXPECT_EQ(json.size(), 10u);
  json["about"] = {{"segment_ns", "a guess"}};
  const PlanResult<CostConstants> read = ReadConstants(PrettyJson(json));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value(), constants);
}

TEST(ConstantsJson, WhatIsLeftOutIsTheDefault) {
  const PlanResult<CostConstants> read = ReadConstants(R"({"segment_ns": 0})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  CostConstants wanted;
  wanted.segment_ns = 0;
  EXPECT_EQ(read.value(), wanted);
}

TEST(ConstantsJson, Errors) {
  EXPECT_EQ(
      ErrorOf(R"({"gather_ns": 1})"),
      "constants.gather_ns: unknown key 'gather_ns'; the nearest known one is 'gather_row_ns'");
  EXPECT_EQ(ErrorOf(R"({"segment_ns": -1})"), "constants.segment_ns: -1 is not 0 ns or more");
  EXPECT_EQ(ErrorOf(R"({"host_bandwidth": 0})"),
            "constants.host_bandwidth: 0 is not above 0 bytes a millisecond");
  EXPECT_EQ(ErrorOf(R"({"host_bandwidth": "fast"})"),
            "constants.host_bandwidth: expected a number, found string");
  EXPECT_EQ(ErrorOf(R"({"about": 5})"), "constants.about: expected an object, found number");
  EXPECT_NE(ErrorOf("[]"), "accepted");
  EXPECT_NE(ErrorOf("{"), "accepted");
}

TEST(ConstantsJson, AnInputMayCarryThem) {
  const auto plan = [](const std::string& constants) {
    const PlanResult<PlannerInput> input = ReadPlannerInput(
        absl::StrCat(R"({"tables": [{"name": "t", "rows": 100000, "dim": 64}],)", constants,
                     R"("topology": {"servers": [{"name": "s", "host_bytes": 1000000000}]},
            "planner": {"strategy": "cost"}})"));
    EXPECT_TRUE(input.ok()) << input.error().message;
    const PlanResult<PlannerOutput> output = ComputePlan(input.value());
    EXPECT_TRUE(output.ok()) << output.error().message;
    return output.value();
  };
  const PlannerOutput usual = plan("");
  EXPECT_EQ(plan(R"("constants": {},)").cost, usual.cost) << "the defaults";
  const PlannerOutput slow = plan(R"("constants": {"gather_row_ns": 100000},)");
  EXPECT_GT(slow.cost.max_server_ms, 10 * usual.cost.max_server_ms);
  EXPECT_NE(slow.context_hash, usual.context_hash);
}

}  // namespace constants_json_test
}  // namespace hotbed
