#include "planner/report/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/random.h"
#include "planner/report/plan_diff.h"
#include "planner/report/plan_svg.h"
#include "planner/report/text_table.h"
#include "tests/common/test_seed.h"
#include "tests/planner/json/json_cases.h"
#include "tests/planner/sources/source_cases.h"

namespace hotbed {
namespace plan_text_test {

using testing::HasSubstr;

PlannerOutput Computed(const PlannerInput& input) {
  const PlanResult<PlannerOutput> plan = ComputePlan(input);
  EXPECT_TRUE(plan.ok());
  return plan.ok() ? plan.value() : PlannerOutput();
}

size_t Widest(const std::string& text) {
  size_t widest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto characters =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    widest = std::max(widest, static_cast<size_t>(characters));
  }
  return widest;
}

TEST(TextTable, FitsAndAligns) {
  EXPECT_EQ(Fitted("abcdef", 6), "abcdef");
  EXPECT_EQ(Fitted("abcdefg", 6), "abcd..");
  EXPECT_EQ(Fitted("a\x1b[2Jb\n", 10), "a[2Jb");
  EXPECT_EQ(Fitted("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 3), "\xc3\xa4..");
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(4096), "4.0 KiB");
  EXPECT_EQ(BytesText((1ull << 20) - 1), "1.0 MiB");
  EXPECT_EQ(BytesText(1ull << 63), "8.0 EiB");
  EXPECT_EQ(CountText(9999), "9999");
  EXPECT_EQ(CountText(45100), "45.1k");
  EXPECT_EQ(CountText(999999), "1M");
  TextTable table({"name", "n"}, 4, {});
  table.AddRow({"longer", "1"});
  table.AddRow({"b", "22"});
  EXPECT_EQ(table.ToText(), "  name   n\n  lo..   1\n  b     22\n");
}

TEST(PlanText, ShowsEveryPart) {
  PlannerInput input =
      SourceInput({{100, 8}, {5, 8}, {10, 8}, {25, 4}}, 4, PlannerStrategy::kMemoryBalanced, 45);
  input.topology.servers[1].host_bytes = 2120;
  input.tables[1].zipf = 1.05;
  input.tables[2].hotness = {{0.01, 0.5}};
  const std::string text = PlanText(Computed(input), &input);
  EXPECT_THAT(text,
              HasSubstr("Plan by strategy memory_balanced: 4 tables in 10 shards on 4 servers,"
                        " 4.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("1.0 KiB  50%")) << text;
  EXPECT_THAT(text, HasSubstr("column_wise"));
  EXPECT_THAT(text, HasSubstr("zipf 1.05"));
  EXPECT_THAT(text, HasSubstr("1%: 50%"));
  EXPECT_THAT(text, HasSubstr("What binds: host_bytes of s1\n"));
  EXPECT_THAT(text, HasSubstr("chi-squared"));
  EXPECT_LE(Widest(text), 100u) << text;
}

TEST(PlanText, ShowsCostsAndMoves) {
  const std::string text = PlanText(FullPlan(), nullptr);
  EXPECT_THAT(text, HasSubstr("fwd compute"));
  EXPECT_THAT(text, HasSubstr("Slowest server: 1.5 ms a step; no plan is under 1.25 ms, at most "
                              "20.00% better\n"));
  EXPECT_THAT(text, HasSubstr("Critical path: 6 ms comms + 4 ms compute\n"));
  EXPECT_THAT(text, HasSubstr("1 move of 200 B, in this order\n"));
  EXPECT_THAT(text, HasSubstr("    (gone) -> s1, 200 B: s9 is gone\n"));
}

// Names of any bytes and any length, large numbers, many rows.
TEST(PlanText, StaysWithinItsColumns) {
  const TestSeed seed(4);
  Random random(seed.value());
  for (int round = 0; round < 100; ++round) {
    std::vector<Shape> shapes(1 + random.Uniform(80));
    for (Shape& shape : shapes) {
      shape = {1 + random.Uniform(1ull << random.Uniform(36)),
               static_cast<uint32_t>(1 + random.Uniform(2000))};
    }
    PlannerInput input = SourceInput(shapes, 1 + random.Uniform(80), PlannerStrategy::kFair);
    for (InputTable& table : input.tables) {
      table.name += std::string(random.Uniform(200), static_cast<char>(1 + random.Uniform(254)));
      table.zipf = random.Double() * 1e9;
    }
    const PlannerOutput fair = Computed(input);
    input.options.strategy = PlannerStrategy::kWholeFeature;
    const PlannerOutput whole = Computed(input);
    const std::string text = PlanText(fair, &input);
    ASSERT_LE(Widest(text), 100u) << text;
    const std::string diff = PlanDiffText(fair, whole);
    ASSERT_LE(Widest(diff), 100u) << diff;
    EXPECT_EQ(PlanDiffText(fair, fair), "Nothing moves.\nThe plans' numbers are equal.\n");
    EXPECT_THAT(PlanDiffSvg(fair, whole), testing::EndsWith("</svg>\n"));
  }
}

TEST(PlanErrorText, SaysAllOfIt) {
  PlanError error{PlanErrorKind::kInsufficientStorage,
                  absl::StrCat(std::string(60, 'a'), " ", std::string(60, 'b'))};
  error.table = "user";
  error.limit = 10;
  error.missing_bytes = 4096;
  const std::string text = PlanErrorText(error);
  EXPECT_LE(Widest(text), 100u);
  EXPECT_THAT(text, HasSubstr("No plan: insufficient_storage\n"));
  EXPECT_THAT(text, HasSubstr("  table: user\n  limit: 10\n  missing: 4096 bytes (4.0 KiB)\n"));
}

TEST(PlanDiffText, ShowsMovesAndEveryChange) {
  PlannerInput input = SourceInput({{10, 4}, {20, 4}}, 2, PlannerStrategy::kBasic);
  const PlannerOutput before = Computed(input);
  input.topology.servers.pop_back();
  const PlannerOutput after = Computed(input);
  const std::string text = PlanDiffText(before, after);
  EXPECT_THAT(text, HasSubstr("1 move of 320 B\n  t1 rows [0, 20) columns [0, 4)\n"
                              "    (gone) -> s0, 320 B: differs\n"))
      << text;
  EXPECT_THAT(text, HasSubstr("host bytes"));
  EXPECT_THAT(text, HasSubstr("+200.0%"));
  EXPECT_THAT(text, HasSubstr("gone"));
}

TEST(PlanSvg, EscapesNames) {
  PlannerInput input = SourceInput({{10, 4}}, 1, PlannerStrategy::kBasic);
  input.tables[0].name = "<b>&\"";
  input.topology.servers[0].name = "</svg>";
  const std::string svg = PlanSvg(Computed(input), &input);
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp;&quot;"));
  EXPECT_EQ(svg.find("</svg>"), svg.size() - 7);
}

}  // namespace plan_text_test
}  // namespace hotbed
