#include "admin/status_render.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/html_escape.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #e3e5e9;
  --back: #fbfbfc; --card: #ffffff; --zebra: #f6f7f9; --accent: #c2410c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edeef0; --soft: #a0a5ad; --line: #2e3238;
    --back: #111315; --card: #191b1e; --zebra: #1e2125; --accent: #fb923c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h1::before { content: ""; display: inline-block; width: 10px; height: 22px; border-radius: 3px;
  margin-right: 12px; background: var(--accent); vertical-align: -3px; }
.subtitle { color: var(--soft); margin: 6px 0 0; }
nav { margin: 12px 0 24px; font-size: 14px; }
nav a { color: var(--accent); text-decoration: none; margin-right: 16px; }
nav a:hover { text-decoration: underline; }
h2 { font-size: 16px; margin: 32px 0 10px; }
h2 span { color: var(--soft); font-weight: 400; margin-left: 6px; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 12px;
  margin: 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font-size: 16px; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; white-space: nowrap; }
th, td { padding: 7px 14px; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
tbody tr:nth-child(even) { background: var(--zebra); }
.n { text-align: right; white-space: nowrap; }
.none { color: var(--soft); padding: 10px 14px; }
summary { cursor: pointer; color: var(--soft); margin-top: 32px; }
)css";

std::string Plain(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  }
  return out;
}

// A column in which every cell starts with a digit is aligned to the right, so that figures line
// up.
bool IsNumeric(const StatusTable& table, size_t column) {
  bool any = false;
  for (const auto& row : table.rows) {
    if (column >= row.size() || row[column].empty() || row[column] == "-") continue;
    const std::string& cell = row[column];
    const char first = cell[0] == '-' ? cell[1] : cell[0];
    if (first < '0' || first > '9' || absl::StrContains(cell, ":")) return false;
    any = true;
  }
  return any;
}

std::string Seconds(double s) {
  if (s < 1e-3) return absl::StrFormat("%.0f us", s * 1e6);
  if (s < 1) return absl::StrFormat("%.3g ms", s * 1e3);
  return absl::StrFormat("%.3g s", s);
}

std::string NameWithLabels(const MetricSample& sample) {
  std::string out = sample.name;
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "{" : ", ", sample.labels[i].first, "=",
                    sample.labels[i].second);
  }
  if (!sample.labels.empty()) out += "}";
  return out;
}

std::string Number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    const std::string digits = absl::StrFormat("%.0f", std::abs(value));
    std::string out = value < 0 ? "-" : "";
    for (size_t i = 0; i < digits.size(); ++i) {
      if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
      out += digits[i];
    }
    return out;
  }
  return absl::StrFormat("%.6g", value);
}

StatusTable LatencyTable(const std::vector<MetricSample>& samples) {
  StatusTable table{"Latency", {"what", "count", "mean", "p50", "p99"}, {}};
  for (const MetricSample& sample : samples) {
    if (sample.type != MetricSample::Type::kHistogram || sample.histogram.count == 0) continue;
    const auto& h = sample.histogram;
    table.rows.push_back({NameWithLabels(sample), Number(static_cast<double>(h.count)),
                          Seconds(h.sum_seconds / static_cast<double>(h.count)),
                          Seconds(h.Quantile(0.5)), Seconds(h.Quantile(0.99))});
  }
  return table;
}

StatusTable NumbersTable(const std::vector<MetricSample>& samples) {
  StatusTable table{"Counters and gauges", {"name", "value"}, {}};
  for (const MetricSample& sample : samples) {
    if (sample.type == MetricSample::Type::kHistogram) continue;
    table.rows.push_back({NameWithLabels(sample), Number(sample.value)});
  }
  return table;
}

void AppendHtmlTable(const StatusTable& table, std::string* out) {
  absl::StrAppend(out, "<h2>", HtmlEscape(table.title), "<span>", table.rows.size(),
                  "</span></h2>\n", "<div class=\"scroll\">");
  if (table.rows.empty()) {
    out->append("<div class=\"none\">none</div></div>\n");
    return;
  }
  std::vector<const char*> align;
  out->append("<table><thead><tr>");
  for (size_t c = 0; c < table.columns.size(); ++c) {
    align.push_back(IsNumeric(table, c) ? " class=\"n\"" : "");
    absl::StrAppend(out, "<th", align[c], ">", HtmlEscape(table.columns[c]), "</th>");
  }
  out->append("</tr></thead><tbody>\n");
  for (const auto& row : table.rows) {
    out->append("<tr>");
    for (size_t c = 0; c < row.size(); ++c) {
      absl::StrAppend(out, "<td", c < align.size() ? align[c] : "", ">", HtmlEscape(row[c]),
                      "</td>");
    }
    out->append("</tr>\n");
  }
  out->append("</tbody></table></div>\n");
}

void AppendTextTable(const StatusTable& table, std::string* out) {
  absl::StrAppend(out, "\n", Plain(table.title), " (", table.rows.size(), ")\n");
  if (table.rows.empty()) return;
  std::vector<size_t> width;
  std::vector<bool> numeric;  // looked for once: it reads the whole column
  for (const auto& column : table.columns) {
    numeric.push_back(IsNumeric(table, width.size()));
    width.push_back(Plain(column).size());
  }
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size() && c < width.size(); ++c) {
      width[c] = std::max(width[c], Plain(row[c]).size());
    }
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size() && c < width.size(); ++c) {
      const std::string cell = Plain(cells[c]);
      const std::string fill(width[c] - cell.size(), ' ');
      absl::StrAppend(&text, "  ", numeric[c] ? fill + cell : cell + fill);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(out, text, "\n");
  };
  line(table.columns);
  for (const auto& row : table.rows) line(row);
}

}  // namespace

std::string StatusAsHtml(const StatusPage& page, const std::vector<MetricSample>& samples) {
  std::string out = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      HtmlEscape(page.title), "</title>\n<style>", kStyle, "</style></head>\n<body><main>\n<h1>",
      HtmlEscape(page.title), "</h1>\n<p class=\"subtitle\">", HtmlEscape(page.subtitle),
      "</p>\n<nav><a href=\"/metrics\">metrics</a><a href=\"/api/status\">status as JSON</a>"
      "<a href=\"/api/metrics\">metrics as JSON</a><a href=\"/readyz\">ready?</a></nav>\n"
      "<dl class=\"facts\">\n");
  for (const auto& [name, value] : page.facts) {
    absl::StrAppend(&out, "<div><dt>", HtmlEscape(name), "</dt><dd>", HtmlEscape(value),
                    "</dd></div>\n");
  }
  out.append("</dl>\n");
  for (const StatusTable& table : page.tables) AppendHtmlTable(table, &out);
  const StatusTable latency = LatencyTable(samples);
  if (!latency.rows.empty()) AppendHtmlTable(latency, &out);
  out.append("<details><summary>All counters and gauges</summary>\n");
  AppendHtmlTable(NumbersTable(samples), &out);
  out.append("</details>\n</main></body></html>\n");
  return out;
}

std::string StatusAsText(const StatusPage& page, const std::vector<MetricSample>& samples) {
  std::string out = absl::StrCat(Plain(page.title), "\n", Plain(page.subtitle), "\n\n");
  size_t width = 0;
  for (const auto& fact : page.facts) width = std::max(width, Plain(fact.first).size());
  for (const auto& [name, value] : page.facts) {
    const std::string label = Plain(name);
    absl::StrAppend(&out, "  ", label, std::string(width - label.size() + 2, ' '), Plain(value),
                    "\n");
  }
  for (const StatusTable& table : page.tables) AppendTextTable(table, &out);
  const StatusTable latency = LatencyTable(samples);
  if (!latency.rows.empty()) AppendTextTable(latency, &out);
  return out;
}

std::string StatusAsJson(const StatusPage& page) {
  if (!page.json.empty()) return page.json;
  nlohmann::json out = {{"title", page.title}, {"subtitle", page.subtitle}};
  for (const auto& [name, value] : page.facts) out["facts"][name] = value;
  for (const StatusTable& table : page.tables) {
    out["tables"].push_back(
        {{"title", table.title}, {"columns", table.columns}, {"rows", table.rows}});
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool PrefersText(const char* accept, const char* user_agent) {
  if (accept != nullptr && absl::StrContains(accept, "text/html")) return false;
  if (accept != nullptr && absl::StartsWith(accept, "text/plain")) return true;
  if (user_agent == nullptr) return true;
  return !absl::StartsWith(user_agent, "Mozilla/");
}

}  // namespace hotbed
