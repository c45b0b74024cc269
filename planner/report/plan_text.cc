#include "planner/report/plan_text.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "planner/model/plan_names.h"
#include "planner/report/critical_path.h"
#include "planner/report/imbalance.h"
#include "planner/report/text_table.h"

namespace hotbed {
namespace {

// "1 table", "2 tables".
std::string Counted(size_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

uint64_t AllBytes(const TierBytes& bytes) { return bytes.device + bytes.host + bytes.spill; }

uint64_t TableBytes(const PlacedTable& table) {
  uint64_t bytes = 0;
  for (const PlacedRange& range : table.ranges) bytes += range.bytes;
  return bytes;
}

// "31.2 GiB 97%"; `limit` 0: unknown.
std::string Filled(uint64_t bytes, uint64_t limit) {
  if (limit == 0) return BytesText(bytes);
  return absl::StrFormat("%s %3.0f%%", BytesText(bytes),
                         100 * static_cast<double>(bytes) / static_cast<double>(limit));
}

// The indices of the `rows_max` largest, in their order.
std::vector<size_t> Largest(const std::vector<uint64_t>& sizes, size_t rows_max) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (order.size() > rows_max) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
    order.resize(rows_max);
    std::sort(order.begin(), order.end());
  }
  return order;
}

std::string More(size_t all, size_t shown, const char* what) {
  return all == shown ? "" : absl::StrCat("  and ", all - shown, " smaller ", what, "\n");
}

std::string ServersText(const PlannerOutput& plan, const PlannerInput* input, size_t rows_max) {
  std::vector<size_t> shards(plan.servers.size());
  for (const PlacedTable& table : plan.tables) {
    for (const PlacedRange& range : table.ranges) ++shards[range.server];
  }
  std::vector<uint64_t> sizes;
  for (const PlacedServer& server : plan.servers) sizes.push_back(AllBytes(server.bytes));
  TextTable table({"server", "device", "host", "spill", "elements", "shards", "fused"}, 24, {});
  const std::vector<size_t> shown = Largest(sizes, rows_max);
  for (const size_t s : shown) {
    const PlacedServer& server = plan.servers[s];
    const bool known = input != nullptr && s < input->topology.servers.size();
    const InputServer limits = known ? input->topology.servers[s] : InputServer();
    table.AddRow({server.name, Filled(server.bytes.device, limits.device_bytes),
                  Filled(server.bytes.host, limits.host_bytes),
                  Filled(server.bytes.spill, limits.spill_bytes), CountText(server.elements),
                  absl::StrCat(shards[s]), absl::StrCat(server.groups.size())});
  }
  return absl::StrCat("\nServers\n", table.ToText(), More(sizes.size(), shown.size(), "servers"));
}

std::string TermsText(const PlannerOutput& plan, size_t rows_max) {
  std::vector<uint64_t> sizes;
  bool any = false;
  for (const PlacedServer& server : plan.servers) {
    any = any || server.perf.has_value();
    // Only for the choice of the rows that are shown: microseconds.
    sizes.push_back(server.perf ? static_cast<uint64_t>(server.perf->Total() * 1000) : 0);
  }
  if (!any) return "";
  std::vector<std::string> columns = {"server"};
  for (const PerfTerm& term : kPerfTerms) columns.push_back(term.heading);
  columns.push_back("total");
  TextTable table(std::move(columns), 24, {});
  const std::vector<size_t> shown = Largest(sizes, rows_max);
  for (const size_t s : shown) {
    const TablePerf perf = plan.servers[s].perf.value_or(TablePerf());
    std::vector<std::string> cells = {plan.servers[s].name};
    for (const PerfTerm& term : kPerfTerms) cells.push_back(MsText(perf.*term.ms));
    cells.push_back(MsText(perf.Total()));
    table.AddRow(std::move(cells));
  }
  return absl::StrCat("\nMilliseconds a step\n", table.ToText(),
                      More(sizes.size(), shown.size(), "servers"));
}

std::string HotnessText(const PlannerInput* input, size_t table) {
  if (input == nullptr || table >= input->tables.size()) return "-";
  const InputTable& spec = input->tables[table];
  if (!spec.hotness.empty()) {
    return absl::StrFormat("%.3g%%: %.3g%%", 100 * spec.hotness[0].rows,
                           100 * spec.hotness[0].accesses);
  }
  return spec.zipf ? absl::StrFormat("zipf %.3g", *spec.zipf) : "even";
}

std::string TablesText(const PlannerOutput& plan, const PlannerInput* input, size_t rows_max) {
  std::vector<uint64_t> sizes;
  for (const PlacedTable& table : plan.tables) sizes.push_back(TableBytes(table));
  TextTable text({"table", "sharding", "shards", "servers", "bytes", "hotness", "cost ms"}, 28,
                 {1});
  const std::vector<size_t> shown = Largest(sizes, rows_max);
  for (const size_t t : shown) {
    const PlacedTable& table = plan.tables[t];
    std::set<uint32_t> servers;
    for (const PlacedRange& range : table.ranges) servers.insert(range.server);
    std::string sharding = PlanWord(table.sharding);
    if (table.cache_load_factor) {
      absl::StrAppendFormat(&sharding, ", cache %.3g", *table.cache_load_factor);
    }
    text.AddRow({table.name, sharding, absl::StrCat(table.ranges.size()),
                 absl::StrCat(servers.size()), BytesText(sizes[t]), HotnessText(input, t),
                 table.perf ? MsText(table.perf->Total()) : "-"});
  }
  return absl::StrCat("\nTables\n", text.ToText(), More(sizes.size(), shown.size(), "tables"));
}

std::string CostText(const PlannerOutput& plan) {
  std::string out = "\n";
  if (!plan.cost.binding.empty()) {
    absl::StrAppend(&out, Fitted("What binds: " + plan.cost.binding, kReportColumns), "\n");
  }
  if (plan.cost.max_server_ms > 0) {
    absl::StrAppend(&out, "Slowest server: ", MsText(plan.cost.max_server_ms), " ms a step");
    if (plan.cost.lower_bound_ms > 0) {
      absl::StrAppendFormat(&out, "; no plan is under %s ms, at most %.2f%% better",
                            MsText(plan.cost.lower_bound_ms), 100 * plan.cost.gap);
    }
    absl::StrAppend(&out, "\n");
  }
  const CriticalPath path = CriticalPathOf(plan);
  if (path.comms_ms + path.compute_ms > 0) {
    absl::StrAppend(&out, "Critical path: ", MsText(path.comms_ms), " ms comms + ",
                    MsText(path.compute_ms), " ms compute\n");
  }
  return out == "\n" ? "" : out;
}

std::string ImbalanceText(const PlannerOutput& plan) {
  std::vector<double> elements;
  std::vector<double> device;
  std::vector<double> host;
  std::vector<double> spill;
  std::vector<double> ms;
  for (const PlacedServer& server : plan.servers) {
    elements.push_back(static_cast<double>(server.elements));
    device.push_back(static_cast<double>(server.bytes.device));
    host.push_back(static_cast<double>(server.bytes.host));
    spill.push_back(static_cast<double>(server.bytes.spill));
    ms.push_back(server.perf ? server.perf->Total() : 0);
  }
  TextTable table({"of", "total variation", "total distance", "chi-squared", "KL"}, 24, {});
  const std::pair<const char*, const std::vector<double>*> rows[] = {{"elements", &elements},
                                                                     {"device bytes", &device},
                                                                     {"host bytes", &host},
                                                                     {"spill bytes", &spill},
                                                                     {"milliseconds", &ms}};
  for (const auto& [name, loads] : rows) {
    if (std::all_of(loads->begin(), loads->end(), [](double load) { return load == 0; })) continue;
    const Imbalance found = MeasureImbalance(*loads);
    const auto text = [](double value) { return absl::StrFormat("%.3f", value); };
    table.AddRow({name, text(found.total_variation), text(found.total_distance),
                  text(found.chi_squared), text(found.kl_divergence)});
  }
  return absl::StrCat("\nImbalance (0: even)\n", table.ToText());
}

std::string MoveLines(const PlannedMove& move) {
  const std::string what =
      absl::StrCat("  ", Fitted(move.table, 24), " rows [", move.row_first, ", ", move.row_limit,
                   ") columns [", move.column_first, ", ", move.column_limit, ")");
  const std::string how =
      absl::StrCat("    ", move.from.empty() ? "(gone)" : Fitted(move.from, 24), " -> ",
                   Fitted(move.to, 24), ", ", BytesText(move.bytes), ": ", move.reason);
  return absl::StrCat(Fitted(what, kReportColumns), "\n", Fitted(how, kReportColumns), "\n");
}

}  // namespace

std::string MovesText(const std::vector<PlannedMove>& moves, absl::string_view note,
                      size_t rows_max) {
  uint64_t bytes = 0;
  for (const PlannedMove& move : moves) bytes += move.bytes;
  std::string out = absl::StrCat(moves.size(), moves.size() == 1 ? " move" : " moves", " of ",
                                 BytesText(bytes), note, "\n");
  for (size_t i = 0; i < std::min(rows_max, moves.size()); ++i) out += MoveLines(moves[i]);
  if (moves.size() > rows_max) absl::StrAppend(&out, "  and ", moves.size() - rows_max, " more\n");
  return out;
}

std::string PlanText(const PlannerOutput& plan, const PlannerInput* input, size_t rows_max) {
  size_t shards = 0;
  uint64_t bytes = 0;
  for (const PlacedTable& table : plan.tables) shards += table.ranges.size();
  for (const PlacedServer& server : plan.servers) bytes += AllBytes(server.bytes);
  std::string out =
      Fitted(absl::StrCat("Plan by strategy ", plan.strategy, ": ",
                          Counted(plan.tables.size(), "table"), " in ", Counted(shards, "shard"),
                          " on ", Counted(plan.servers.size(), "server"), ", ", BytesText(bytes)),
             kReportColumns);
  absl::StrAppend(&out, "\n");
  if (!plan.context_hash.empty()) {
    absl::StrAppend(&out, Fitted("Made for context " + plan.context_hash, kReportColumns), "\n");
  }
  absl::StrAppend(&out, ServersText(plan, input, rows_max), TermsText(plan, rows_max),
                  TablesText(plan, input, rows_max), CostText(plan), ImbalanceText(plan),
                  plan.moves.empty() ? "" : "\n",
                  plan.moves.empty() ? "" : MovesText(plan.moves, ", in this order", rows_max));
  return out;
}

std::string PlanErrorText(const PlanError& error) {
  std::string out = absl::StrCat("No plan: ", PlanWord(error.kind), "\n");
  std::string line = " ";
  for (const absl::string_view word : absl::StrSplit(error.message, ' ')) {
    if (line.size() + 1 + word.size() > kReportColumns && line.size() > 1) {
      absl::StrAppend(&out, line, "\n");
      line.assign(1, ' ');
    }
    absl::StrAppend(&line, " ", Fitted(word, kReportColumns - 2));
  }
  absl::StrAppend(&out, line, "\n");
  if (error.table) absl::StrAppend(&out, "  table: ", Fitted(*error.table, 80), "\n");
  if (error.limit) absl::StrAppend(&out, "  limit: ", *error.limit, "\n");
  if (error.missing_bytes) {
    absl::StrAppend(&out, "  missing: ", *error.missing_bytes, " bytes (",
                    BytesText(*error.missing_bytes), ")\n");
  }
  return out;
}

}  // namespace hotbed
