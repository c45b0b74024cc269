// hotbed table scan and follow: rows as lines of JSON.
#include <CLI/App.hpp>
#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/interrupt.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr int64_t kKeepEveryNs = kSecondNs;
constexpr absl::Duration kRowsWait = absl::Milliseconds(200);

struct TableRowsFlags {
  std::string name;
  bool rows = false;        // scan: with weights
  bool statistics = false;  // scan
  uint64_t first = 0;       // scan, of ids
  uint64_t last = ~uint64_t{0};
  uint64_t limit = 0;     // scan; 0: all
  std::string positions;  // follow: file
  double seconds = 0;     // follow; 0: until interrupted
};

// The shortest text that reads back as the same float; JSON has no NaN.
void AppendFloat(float value, std::string* text) {
  if (!std::isfinite(value)) return absl::StrAppend(text, "null");
  char digits[32];
  text->append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void AppendStatistics(const ListedTouches& row, std::string* text) {
  absl::StrAppend(text, ",\"touches\":{\"count\":", row.touches, ",\"time_s\":", row.time_s,
                  ",\"step\":", row.step, ",\"candidate\":", row.candidate ? "true" : "false", "}");
}

// Written by hand: a stream may have some hundred thousand rows per second.
absl::Status PrintRows(const CommandContext& context, const RowChanges& changes, bool rows,
                       uint64_t* left) {
  const size_t columns = changes.ids.empty() ? 0 : changes.rows.size() / changes.ids.size();
  std::string text;
  if (changes.again) {
    absl::StrAppend(&text, "{\"shard\":", changes.shard,
                    ",\"again\":true,\"first\":", changes.range.first,
                    ",\"limit\":", changes.range.limit, "}\n");
  }
  for (size_t i = 0; i < changes.ids.size() && *left > 0; ++i, --*left) {
    absl::StrAppend(&text, "{\"shard\":", changes.shard, ",\"lsn\":", changes.lsn,
                    ",\"id\":", changes.ids[i]);
    if (rows && changes.range.column_first != 0) {
      absl::StrAppend(&text, ",\"column\":", changes.range.column_first);
    }
    if (!changes.statistics.empty()) AppendStatistics(changes.statistics[i], &text);
    for (size_t k = 0; rows && k < columns; ++k) {
      text += k == 0 ? ",\"row\":[" : ",";
      AppendFloat(changes.rows[i * columns + k], &text);
    }
    text += rows ? "]}\n" : "}\n";
  }
  for (size_t i = 0; i < changes.deleted.size() && *left > 0; ++i, --*left) {
    absl::StrAppend(&text, "{\"shard\":", changes.shard, ",\"lsn\":", changes.lsn,
                    ",\"id\":", changes.deleted[i], ",\"deleted\":true}\n");
  }
  *context.out << text << std::flush;
  if (context.out->good()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "the output did not take rows of shard ", changes.shard,
      "; is its disk full? Kept positions are those of rows that were printed before: give the "
      "command the same file again"));
}

std::string Target(const CommandContext& context) {
  return absl::StrCat("hotbed://", context.coordinator);
}

absl::Status Scan(const CommandContext& context, const TableRowsFlags& flags) {
  FollowOptions options;
  options.once = true;
  options.with_rows = flags.rows;
  options.with_statistics = flags.statistics;
  options.first_id = flags.first;
  options.last_id = flags.last;
  HOTBED_ASSIGN_OR_RETURN(const auto stream, Follow(Target(context), flags.name, options));
  const InterruptScope interrupt;
  uint64_t left = flags.limit == 0 ? ~uint64_t{0} : flags.limit;
  while (!stream->ended() && left > 0 && !interrupt.interrupted()) {
    HOTBED_ASSIGN_OR_RETURN(const auto changes, stream->Next(kRowsWait));
    if (!changes.has_value()) continue;
    HOTBED_RETURN_IF_ERROR(PrintRows(context, *changes, flags.rows, &left));
  }
  return absl::OkStatus();
}

// --- positions: a JSON list with an object per part of the table

struct NamedNumber {
  const char* name;
  uint64_t (*get)(const RangePosition& position);
  void (*set)(RangePosition* position, uint64_t value);
};
constexpr NamedNumber kNumbers[] = {
    {"table", [](const RangePosition& p) { return p.table; },
     [](RangePosition* p, uint64_t v) { p->table = v; }},
    {"first", [](const RangePosition& p) { return p.range.first; },
     [](RangePosition* p, uint64_t v) { p->range.first = v; }},
    {"limit", [](const RangePosition& p) { return p.range.limit; },
     [](RangePosition* p, uint64_t v) { p->range.limit = v; }},
    {"column_first", [](const RangePosition& p) { return uint64_t{p.range.column_first}; },
     [](RangePosition* p, uint64_t v) { p->range.column_first = static_cast<uint32_t>(v); }},
    {"column_limit", [](const RangePosition& p) { return uint64_t{p.range.column_limit}; },
     [](RangePosition* p, uint64_t v) { p->range.column_limit = static_cast<uint32_t>(v); }},
    {"epoch", [](const RangePosition& p) { return p.epoch; },
     [](RangePosition* p, uint64_t v) { p->epoch = v; }},
    {"lsn", [](const RangePosition& p) { return p.lsn; },
     [](RangePosition* p, uint64_t v) { p->lsn = v; }},
    {"seen_epoch", [](const RangePosition& p) { return p.seen_epoch; },
     [](RangePosition* p, uint64_t v) { p->seen_epoch = v; }},
    {"seen_lsn", [](const RangePosition& p) { return p.seen_lsn; },
     [](RangePosition* p, uint64_t v) { p->seen_lsn = v; }},
};

bool ReadPosition(const nlohmann::json& json, RangePosition* position) {
  if (!json.is_object()) return false;
  for (const NamedNumber& number : kNumbers) {
    const auto it = json.find(number.name);
    if (it == json.end() || !it->is_number_unsigned()) return false;
    number.set(position, it->get<uint64_t>());
  }
  return true;
}

absl::StatusOr<ChangePositions> ReadPositions(const std::string& path) {
  ChangePositions positions;
  if (path.empty() || !FileSystem::Real()->Exists(path)) return positions;
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool valid = json.is_array();
  for (size_t i = 0; valid && i < json.size(); ++i) {
    valid = ReadPosition(json[i], &positions.emplace_back());
  }
  if (valid) return positions;
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   " holds no positions; give the file of an earlier 'table follow', or one "
                   "that does not exist"));
}

absl::Status KeepPositions(const std::string& path, const ChangePositions& positions) {
  if (path.empty()) return absl::OkStatus();
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const RangePosition& position : positions) {
    nlohmann::ordered_json& one = json.emplace_back(nlohmann::ordered_json::object());
    for (const NamedNumber& number : kNumbers) one[number.name] = number.get(position);
  }
  return FileSystem::Real()->WriteAtomically(path, absl::StrCat(json.dump(), "\n"));
}

absl::Status FollowTable(const CommandContext& context, const TableRowsFlags& flags) {
  FollowOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.from, ReadPositions(flags.positions));
  HOTBED_ASSIGN_OR_RETURN(const auto stream, Follow(Target(context), flags.name, options));
  const InterruptScope interrupt;
  int64_t kept_ns = Clock::Real()->NowNs();
  const int64_t end_ns = Clock::Real()->NowNs() + static_cast<int64_t>(flags.seconds * 1e9);
  while (!interrupt.interrupted() && (flags.seconds == 0 || Clock::Real()->NowNs() < end_ns)) {
    HOTBED_ASSIGN_OR_RETURN(const auto changes, stream->Next(kRowsWait));
    if (changes.has_value()) {
      uint64_t left = ~uint64_t{0};
      HOTBED_RETURN_IF_ERROR(PrintRows(context, *changes, /*rows=*/true, &left));
    }
    if (Clock::Real()->NowNs() - kept_ns < kKeepEveryNs) continue;
    kept_ns = Clock::Real()->NowNs();
    HOTBED_RETURN_IF_ERROR(KeepPositions(flags.positions, stream->Positions()));
  }
  return KeepPositions(flags.positions, stream->Positions());
}

}  // namespace

void AddTableScanCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableRowsFlags>();
  CLI::App* app = table->add_subcommand(
      "scan", "List the rows of a table that were ever pushed, as lines of JSON");
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_flag("--rows", flags->rows, "With their weights");
  app->add_flag("--statistics", flags->statistics,
                "With touches, and time and step of the last one; lists candidates too");
  app->add_option("--first", flags->first, "The least id to list")->capture_default_str();
  app->add_option("--last", flags->last, "The greatest id to list")->capture_default_str();
  app->add_option("--limit", flags->limit, "At most so many lines; 0: all")->capture_default_str();
  context->Runs(app, [context, flags] { return Scan(*context, *flags); });
}

void AddTableFollowCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableRowsFlags>();
  CLI::App* app = table->add_subcommand(
      "follow", "Print all rows of a table, then those that change, as lines of JSON");
  app->add_option("NAME", flags->name, "Name of the table")->required();
  app->add_option("--positions", flags->positions,
                  "File in which the positions are kept, and from which they are taken up again");
  app->add_option("--seconds", flags->seconds, "End after this time; 0: when interrupted")
      ->capture_default_str();
  context->Runs(app, [context, flags] { return FollowTable(*context, *flags); });
}

}  // namespace hotbed
