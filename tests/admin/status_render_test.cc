#include "admin/status_render.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace status_render_test {

using ::testing::HasSubstr;
using ::testing::Not;

StatusPage Page() {
  StatusPage page;
  page.title = "hotbed-server s1";
  page.subtitle = "127.0.0.1:7500, serving";
  page.facts = {{"rows", "1,000"}, {"hot tier", "12 MiB"}};
  page.tables = {{"Shards",
                  {"shard", "rows", "state"},
                  {{"user/0", "900", "active"}, {"user/1", "1,100", "waits"}}},
                 {"Moves", {"shard"}, {}}};
  return page;
}

TEST(StatusRender, TextAlignsColumnsAndRightAlignsNumbers) {
  EXPECT_EQ(StatusAsText(Page(), {}),
            "hotbed-server s1\n"
            "127.0.0.1:7500, serving\n"
            "\n"
            "  rows      1,000\n"
            "  hot tier  12 MiB\n"
            "\n"
            "Shards (2)\n"
            "  shard    rows  state\n"
            "  user/0    900  active\n"
            "  user/1  1,100  waits\n"
            "\n"
            "Moves (0)\n");
}

TEST(StatusRender, HtmlEscapesEverythingThatPeopleName) {
  StatusPage page = Page();
  page.title = "<script>alert(1)</script>";
  page.facts.push_back({"a&b", "\"quoted\" 'too'"});
  page.tables[0].rows[0][0] = "</td><img src=x>";
  page.tables[0].title = "<h1>";
  page.tables[0].columns[0] = "<b>";
  const std::string html = StatusAsHtml(page, {});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, HasSubstr("a&amp;b"));
  EXPECT_THAT(html, HasSubstr("&quot;quoted&quot; &#39;too&#39;"));
}

TEST(StatusRender, HtmlNeedsNothingFromOutside) {
  const std::string html = StatusAsHtml(Page(), {});
  EXPECT_THAT(html, Not(HasSubstr("http://")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
}

TEST(StatusRender, TextDropsControlCharactersOfNames) {
  StatusPage page = Page();
  page.title = "evil\x1b[2Jname";
  EXPECT_THAT(StatusAsText(page, {}), HasSubstr("evil[2Jname\n"));
}

TEST(StatusRender, JsonIsThePagesOwnOrMadeOfFactsAndTables) {
  StatusPage page = Page();
  const nlohmann::json made = nlohmann::json::parse(StatusAsJson(page));
  EXPECT_EQ(made["facts"]["rows"], "1,000");
  EXPECT_EQ(made["tables"][0]["rows"][1][0], "user/1");
  page.json = "{\"rows\": 1000}";
  EXPECT_EQ(StatusAsJson(page), "{\"rows\": 1000}");
}

TEST(StatusRender, BrowsersGetHtmlAndTerminalsText) {
  EXPECT_FALSE(PrefersText("text/html,application/xhtml+xml", "Mozilla/5.0 (X11; Linux)"));
  EXPECT_FALSE(PrefersText("*/*", "Mozilla/5.0"));
  EXPECT_FALSE(PrefersText("text/html", "curl/7.88.1"));
  EXPECT_TRUE(PrefersText("*/*", "curl/7.88.1"));
  EXPECT_TRUE(PrefersText(nullptr, nullptr));
  EXPECT_TRUE(PrefersText("text/plain", "Mozilla/5.0"));
}

// Its time was the square of the rows: 16,000 shards took 20 s.
TEST(StatusRender, ALongTableTakesTimeInProportion) {
  StatusPage page;
  StatusTable table{"Shards", {"shard", "table", "state", "epoch", "pulled", "pushed"}, {}};
  for (int i = 0; i < 60'000; ++i) {
    table.rows.push_back({absl::StrCat("1/", i), "t", "active", "7", absl::StrCat(i), "0"});
  }
  page.tables.push_back(table);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GT(StatusAsText(page, {}).size(), 60'000u * 20);
  // It takes some 50 ms; the square took minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace status_render_test
}  // namespace hotbed
