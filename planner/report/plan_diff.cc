#include "planner/report/plan_diff.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/model/plan_differences.h"
#include "planner/model/plan_names.h"
#include "planner/report/imbalance.h"
#include "planner/report/plan_text.h"
#include "planner/report/text_table.h"

namespace hotbed {
namespace {

// A number of a plan under its name, as it is shown.
struct Number {
  std::string name;
  std::string text;
  double value = 0;
};

using Numbers = std::vector<Number>;

Number Bytes(std::string name, uint64_t bytes) {
  return {std::move(name), BytesText(bytes), static_cast<double>(bytes)};
}
Number Count(std::string name, uint64_t count) {
  return {std::move(name), CountText(count), static_cast<double>(count)};
}
Number Ms(std::string name, double ms) { return {std::move(name), MsText(ms), ms}; }

void AddPerf(const std::optional<TablePerf>& perf, Numbers* numbers) {
  const TablePerf terms = perf.value_or(TablePerf());
  for (const PerfTerm& term : kPerfTerms) {
    numbers->push_back(Ms(absl::StrCat(term.heading, " ms"), terms.*term.ms));
  }
}

Numbers OfWhole(const PlannerOutput& plan) {
  uint64_t shards = 0;
  uint64_t elements = 0;
  TierBytes bytes;
  std::vector<double> loads;
  for (const PlacedTable& table : plan.tables) shards += table.ranges.size();
  for (const PlacedServer& server : plan.servers) {
    elements += server.elements;
    bytes.device += server.bytes.device;
    bytes.host += server.bytes.host;
    bytes.spill += server.bytes.spill;
    loads.push_back(static_cast<double>(server.elements));
  }
  const Imbalance imbalance = MeasureImbalance(loads);
  const auto measure = [](const char* name, double value) {
    return Number{name, absl::StrFormat("%.3f", value), value};
  };
  return {Count("tables", plan.tables.size()),
          Count("servers", plan.servers.size()),
          Count("shards", shards),
          Count("elements", elements),
          Bytes("device bytes", bytes.device),
          Bytes("host bytes", bytes.host),
          Bytes("spill bytes", bytes.spill),
          Ms("slowest server ms", plan.cost.max_server_ms),
          Ms("lower bound ms", plan.cost.lower_bound_ms),
          measure("gap", plan.cost.gap),
          measure("total variation", imbalance.total_variation),
          measure("total distance", imbalance.total_distance),
          measure("chi-squared", imbalance.chi_squared),
          measure("KL", imbalance.kl_divergence)};
}

Numbers OfServer(const PlannerOutput& plan, size_t s) {
  const PlacedServer& server = plan.servers[s];
  uint64_t shards = 0;
  for (const PlacedTable& table : plan.tables) {
    shards += std::count_if(table.ranges.begin(), table.ranges.end(),
                            [&](const PlacedRange& range) { return range.server == s; });
  }
  Numbers numbers = {Count("shards", shards), Count("elements", server.elements),
                     Bytes("device bytes", server.bytes.device),
                     Bytes("host bytes", server.bytes.host),
                     Bytes("spill bytes", server.bytes.spill)};
  AddPerf(server.perf, &numbers);
  return numbers;
}

Numbers OfTable(const PlannerOutput& plan, size_t t) {
  const PlacedTable& table = plan.tables[t];
  uint64_t bytes = 0;
  absl::flat_hash_set<uint32_t> servers;
  for (const PlacedRange& range : table.ranges) {
    bytes += range.bytes;
    servers.insert(range.server);
  }
  Numbers numbers = {{"sharding", PlanWord(table.sharding), 0},
                     Count("shards", table.ranges.size()),
                     Count("servers", servers.size()),
                     Bytes("bytes", bytes)};
  AddPerf(table.perf, &numbers);
  return numbers;
}

class DiffTable {
 public:
  explicit DiffTable(size_t rows_max) : rows_max_(rows_max) {}

  // The numbers that differ; none of the same name must be missing on one side only.
  void Add(const std::string& of, const Numbers& before, const Numbers& after) {
    for (size_t i = 0; i < before.size(); ++i) {
      const Number& a = before[i];
      const Number& b = after[i];
      if (a.value == b.value && a.text == b.text) continue;
      std::string change;
      if (a.value > 0) change = absl::StrFormat("%+.1f%%", 100 * (b.value - a.value) / a.value);
      AddRow({of, a.name, a.text, b.text, change});
    }
  }

  void AddRow(std::vector<std::string> cells) {
    if (++rows_ <= rows_max_) table_.AddRow(std::move(cells));
  }

  std::string ToText(const char* title) const {
    if (rows_ == 0) return "";
    return absl::StrCat(
        "\n", title, "\n", table_.ToText(),
        rows_ > rows_max_ ? absl::StrCat("  and ", rows_ - rows_max_, " more\n") : "");
  }

 private:
  const size_t rows_max_;
  size_t rows_ = 0;
  TextTable table_{{"of", "number", "before", "after", "change"}, 28, {1}};
};

// Calls both(before index, after index) or one(name, text before, text after) for each name.
template <typename T, typename Both, typename One>
void MatchByName(const std::vector<T>& before, const std::vector<T>& after, const Both& both,
                 const One& one) {
  absl::flat_hash_map<std::string, size_t> index;
  for (size_t i = 0; i < after.size(); ++i) index.emplace(after[i].name, i);
  absl::flat_hash_set<std::string> matched;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto found = index.find(before[i].name);
    if (found == index.end()) {
      one(before[i].name, "there", "gone");
    } else {
      matched.insert(before[i].name);
      both(i, found->second);
    }
  }
  for (const T& item : after) {
    if (!matched.contains(item.name)) one(item.name, "-", "new");
  }
}

}  // namespace

std::string PlanDiffText(const PlannerOutput& before, const PlannerOutput& after, size_t rows_max) {
  const std::vector<PlannedMove> moves = PlanDifferences(before, after, "differs");
  DiffTable whole(rows_max);
  if (before.strategy != after.strategy) {
    whole.AddRow({"plan", "strategy", before.strategy, after.strategy, ""});
  }
  whole.Add("plan", OfWhole(before), OfWhole(after));
  if (before.cost.binding != after.cost.binding) {
    whole.AddRow({"plan", "what binds", Fitted(before.cost.binding, 24),
                  Fitted(after.cost.binding, 24), ""});
  }
  DiffTable servers(rows_max);
  MatchByName(
      before.servers, after.servers,
      [&](size_t a, size_t b) {
        servers.Add(before.servers[a].name, OfServer(before, a), OfServer(after, b));
      },
      [&](const std::string& name, const char* was, const char* is) {
        servers.AddRow({name, "server", was, is, ""});
      });
  DiffTable tables(rows_max);
  MatchByName(
      before.tables, after.tables,
      [&](size_t a, size_t b) {
        tables.Add(before.tables[a].name, OfTable(before, a), OfTable(after, b));
      },
      [&](const std::string& name, const char* was, const char* is) {
        tables.AddRow({name, "table", was, is, ""});
      });
  const std::string numbers =
      absl::StrCat(whole.ToText("Whole"), servers.ToText("Servers"), tables.ToText("Tables"));
  return absl::StrCat(moves.empty() ? "Nothing moves.\n" : MovesText(moves, "", rows_max),
                      numbers.empty() ? "The plans' numbers are equal.\n" : numbers);
}

}  // namespace hotbed
