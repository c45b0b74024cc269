#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/command.h"
#include "cli/commands/serve_versions.h"
#include "cli/serving/served_copy.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "leader/serving_calls.h"
#include "nlohmann/json.hpp"
#include "security/identity.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kCopiesMax = 64;
constexpr uint64_t kStalenessHintMs = 1000;

const std::map<std::string, v1::ServedFormat>& Formats() {
  static const auto* const formats = new std::map<std::string, v1::ServedFormat>{
      {"fp32", v1::SERVED_FP32}, {"fp16", v1::SERVED_FP16}, {"bf16", v1::SERVED_BF16},
      {"int8", v1::SERVED_INT8}, {"int4", v1::SERVED_INT4}, {"int2", v1::SERVED_INT2}};
  return *formats;
}

std::string FormatName(v1::ServedFormat format) {
  for (const auto& [name, value] : Formats()) {
    if (value == format) return name;
  }
  return absl::StrCat(static_cast<int>(format));
}

struct ServeFlags {
  std::vector<std::string> tables;
  // Empty: as the table has it, if it is served.
  std::string format;
  std::string replicas;
  uint32_t parts = 0;
  std::string staleness_max;
  bool dry_run = false;
};

struct Copies {
  uint32_t least = 1;
  uint32_t most = 1;
};

// N, or MIN..MAX.
absl::StatusOr<Copies> ParseCopies(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  Copies copies;
  if (absl::SimpleAtoi(ends.front(), &copies.least) &&
      absl::SimpleAtoi(ends.back(), &copies.most) && copies.least >= 1 &&
      copies.least <= copies.most && copies.most <= kCopiesMax) {
    return copies;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no number of copies; allowed: N or MIN..MAX, of 1..",
                   kCopiesMax, ", as 2 or 2..6"));
}

// Without a unit it would be milliseconds, which nobody means.
std::string WrongStaleness(const std::string& text) {
  const absl::StatusOr<int64_t> ms = ParseMillis(text);
  if (!ms.ok()) return std::string(ms.status().message());
  if (*ms == 0 || absl::ascii_isalpha(absl::StripAsciiWhitespace(text).back())) return "";
  return absl::StrCat("\"", text, "\" has no unit; write ", text, "s or ", text,
                      "ms, or 0 for no limit");
}

std::string StalenessText(uint64_t limit_ms) {
  return limit_ms == 0 ? "-" : ExactMillis(static_cast<int64_t>(limit_ms));
}

// Told with a limit that copies often exceed, though all is well.
std::string StalenessHint(uint64_t limit_ms) {
  if (limit_ms == 0) return "";
  return absl::StrCat("; copies older than ", StalenessText(limit_ms), " refuse lookups",
                      limit_ms >= kStalenessHintMs
                          ? ""
                          : ", and they are up to half a second old if all is well: give it more");
}

std::string CopiesText(const v1::ServedTable& table) {
  if (table.replicas_max() == 0) return absl::StrCat(table.replicas());
  return absl::StrCat(table.replicas(), " (", table.replicas_min(), "..", table.replicas_max(),
                      ")");
}

Json JsonOf(const v1::ServedTable& table, const std::string& name) {
  return {{"table", name},
          {"format", FormatName(table.format())},
          {"replicas", table.replicas()},
          {"replicas_min", table.replicas_max() == 0 ? table.replicas() : table.replicas_min()},
          {"replicas_max", std::max(table.replicas_max(), table.replicas())},
          {"parts", ServedPartsOf(table)},
          {"parts_min", std::max<uint32_t>(table.parts_min(), 1)},
          {"staleness_ms_max", table.staleness_ms_max()},
          {"servers", std::vector<std::string>(table.servers().begin(), table.servers().end())}};
}

// In how many parts it is to be, and who loads them. Empty: it stays as it is.
std::string ComingText(const v1::ServedTable& table) {
  if (!table.has_beside() || table.beside().leaves()) return "";
  const v1::ServedTable cut = BesideOf(table);
  return absl::StrCat(
      "; it is to be in ", ServedPartsOf(cut), ServedPartsOf(cut) == 1 ? " part" : " parts",
      ", which ",
      cut.servers().empty()
          ? std::string("wait for servers with room for them besides")
          : absl::StrCat("are loaded first, by ", absl::StrJoin(cut.servers(), ", ")));
}

// Copies that the table wants besides those that it has.
std::vector<ServedPart> MissingCopies(const v1::ServedTable& table) {
  std::vector<ServedPart> missing;
  const uint32_t parts = std::max<uint32_t>(table.parts(), 1);
  for (uint32_t part = 0; part < parts; ++part) {
    uint32_t copies = 0;
    for (int i = 0; i < table.servers_size(); ++i)
      copies += ServedPartAt(table, i).part == part ? 1 : 0;
    for (; copies < table.replicas(); ++copies) missing.push_back({part, parts});
  }
  return missing;
}

// "none has room" is said by itself.
std::string MissingText(const v1::ServedTable& table) {
  const size_t missing = table.servers().empty() ? 0 : MissingCopies(table).size();
  if (missing == 0) return "";
  return absl::StrCat("; ", missing, missing == 1 ? " copy waits" : " copies wait",
                      " for a serving server with room");
}

absl::Status Change(v1::ServeTablesRequest::Action action, const ServeFlags& flags,
                    const CommandContext& context) {
  v1::ServeTablesRequest request;
  request.set_action(action);
  for (const std::string& table : flags.tables) request.add_tables(table);
  request.set_dry_run(flags.dry_run);
  if (action == v1::ServeTablesRequest::ADD) {
    if (!flags.format.empty()) request.set_format(Formats().at(flags.format));
    if (!flags.replicas.empty()) {
      HOTBED_ASSIGN_OR_RETURN(const Copies copies, ParseCopies(flags.replicas));
      request.set_replicas(copies.least);
      if (copies.most > copies.least) request.set_replicas_max(copies.most);
    }
    request.set_parts(flags.parts);
    if (!flags.staleness_max.empty()) {
      HOTBED_ASSIGN_OR_RETURN(const int64_t staleness_ms, ParseMillis(flags.staleness_max));
      request.set_staleness_ms_max(static_cast<uint64_t>(staleness_ms));
    }
  }
  ServingCalls calls(context.coordinator, IdentityOfEnvironment());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServeTablesReply reply,
                          calls.Serve(request, context.timeout_duration()));
  Json json = {{"dry_run", flags.dry_run}, {"tables", Json::array()}};
  std::string text;
  for (int i = 0; i < reply.tables_size(); ++i) {
    const v1::ServedTable& table = reply.tables(i);
    const std::string& name = flags.tables[static_cast<size_t>(i)];
    json["tables"].push_back(JsonOf(table, name));
    if (action == v1::ServeTablesRequest::REMOVE) {
      absl::StrAppend(&text, name, flags.dry_run ? " would not be" : " is not",
                      " served any more\n");
      continue;
    }
    absl::StrAppend(
        &text, name, flags.dry_run ? " would be" : " is", " served as ", FormatName(table.format()),
        table.parts() > 1 ? absl::StrCat(" in ", table.parts(), " parts") : "", " by ",
        table.servers().empty() ? std::string("no server yet: none has room for it")
                                : absl::StrJoin(table.servers(), ", "),
        MissingText(table), ComingText(table), StalenessHint(table.staleness_ms_max()), "\n");
  }
  return context.Answer(json, text);
}

// `note`: of the cut.
std::string PartText(const ServedPart& part, const std::string& note) {
  return absl::StrCat(part.part + 1, " of ", part.parts, note);
}

// Adds the copies of a table, of the cut that readers are told of or another one, and returns them.
Json AddCopies(const v1::ServedTable& table, const std::string& name, const std::string& note,
               const v1::ServingMap& map, TablePrinter* printer) {
  Json copies = Json::array();
  for (const ServedCopy& copy : CopiesOf(table, map)) {
    const v1::ReplicaReport& said = copy.said;
    printer->AddRow({name, FormatName(table.format()), CopiesText(table), PartText(copy.part, note),
                     copy.server, copy.state, WithCommas(said.rows()), FormatBytes(said.bytes()),
                     said.on_disk() ? FormatBytes(said.disk_bytes()) : "-",
                     WithCommas(said.lookup_rows_per_s()),
                     said.ready() ? absl::StrCat(copy.age_ms, " ms") : "-",
                     StalenessText(table.staleness_ms_max()), said.trouble()});
    copies.push_back({{"server", copy.server},
                      {"part", copy.part.part},
                      {"state", copy.state},
                      {"rows", said.rows()},
                      {"memory_rows", said.memory_rows()},
                      {"device_rows", said.device_rows()},
                      {"feeder", said.feeder()},
                      {"bytes", said.bytes()},
                      {"disk_bytes", said.disk_bytes()},
                      {"lookup_rows_per_s", said.lookup_rows_per_s()},
                      {"age_ms", said.ready() ? Json(copy.age_ms) : Json()},
                      {"trouble", said.trouble()}});
  }
  return copies;
}

void AddMissing(const v1::ServedTable& table, const std::string& name, const std::string& note,
                TablePrinter* printer) {
  for (const ServedPart& part : MissingCopies(table)) {
    printer->AddRow({name, FormatName(table.format()), CopiesText(table), PartText(part, note), "-",
                     "waits for a server with room", "-", "-", "-", "-", "-",
                     StalenessText(table.staleness_ms_max()), ""});
  }
}

// The versions that the parts which are to follow wait for.
Json AwaitedJson(const v1::ServedTable& table, const v1::ServingMap& map) {
  Json all = Json::array();
  for (const v1::AwaitedVersion& awaited : map.awaited()) {
    if (awaited.table() != table.table()) continue;
    all.push_back({{"version", VersionName(map, awaited.number())},
                   {"server", awaited.server()},
                   {"part", awaited.part()},
                   {"trouble", awaited.trouble()},
                   {"joins", awaited.joins()},
                   {"given_up_in_ms",
                    awaited.has_given_up_in_ms() ? Json(awaited.given_up_in_ms()) : Json()}});
  }
  return all;
}

std::string AwaitedText(const v1::ServedTable& table, const std::string& name,
                        const v1::ServingMap& map) {
  std::string text;
  for (const v1::AwaitedVersion& awaited : map.awaited()) {
    if (awaited.table() != table.table()) continue;
    const std::string version = VersionName(map, awaited.number());
    absl::StrAppend(
        &text, name, " waits with its new parts for version ", version, ", which part ",
        PartText(ServedPartOf(awaited), ""), " on ", awaited.server(),
        " does not hold: ", awaited.trouble(),
        awaited.joins() ? absl::StrCat("; if that goes on for ", awaited.given_up_in_ms() / 1000,
                                       " s, the table stays in the parts that it has")
        : awaited.has_given_up_in_ms()
            ? absl::StrCat("; they follow without it in ", awaited.given_up_in_ms() / 1000, " s")
            : absl::StrCat("; it is current, so they wait until they hold it or another version is "
                           "current ('hotbed publish')"),
        "\n");
  }
  return text;
}

absl::Status Status(const CommandContext& context) {
  ServingCalls calls(context.coordinator, IdentityOfEnvironment());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls.Get(context.timeout_duration()));
  Json json = {{"servers", Json::array()}, {"tables", Json::array()}};
  TablePrinter servers({"server", "domain", "address", "HTTP", "alive", "memory", "of", "tables"});
  for (const v1::ServingServerInfo& server : map.servers()) {
    servers.AddRow({server.name(), server.failure_domain(), server.address(),
                    server.http_address().empty() ? "-" : server.http_address(),
                    server.alive() ? "yes" : absl::StrCat("silent for ", server.silent_ms(), " ms"),
                    FormatBytes(server.bytes()), FormatBytes(server.bytes_max()),
                    absl::StrCat(server.replicas_size())});
    json["servers"].push_back({{"name", server.name()},
                               {"address", server.address()},
                               {"admin_address", server.admin_address()},
                               {"http_address", server.http_address()},
                               {"failure_domain", server.failure_domain()},
                               {"alive", server.alive()},
                               {"bytes", server.bytes()},
                               {"bytes_max", server.bytes_max()}});
  }
  TablePrinter tables({"table", "format", "copies", "part", "server", "state", "rows", "memory",
                       "disk", "rows/s asked", "age", "limit", "trouble"});
  std::string awaited;
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const v1::ServedTable& table = map.tables(i);
    const std::string& name = map.specs(i).name();
    Json one = JsonOf(table, name);
    one["copies"] = AddCopies(table, name, "", map, &tables);
    AddMissing(table, name, "", &tables);
    if (table.has_beside()) {
      const bool leaves = table.beside().leaves();
      const v1::ServedTable cut = BesideOf(table);
      const std::string note = leaves ? ", goes" : ", to follow";
      one["beside"] = {{"parts", ServedPartsOf(cut)},
                       {"leaves", leaves},
                       {"copies", AddCopies(cut, name, note, map, &tables)},
                       {"awaited_versions", AwaitedJson(table, map)}};
      absl::StrAppend(&awaited, AwaitedText(table, name, map));
      if (!leaves) AddMissing(cut, name, note, &tables);
    }
    json["tables"].push_back(std::move(one));
  }
  std::string text = map.servers().empty()
                         ? std::string(
                               "No serving server reports; start one with "
                               "'hotbed-server --role=serving' or 'hotbed up --serving 1'\n")
                         : servers.ToText();
  absl::StrAppend(&text, "\n",
                  map.tables().empty()
                      ? "No table is served; 'hotbed serve add TABLE' begins that\n"
                      : tables.ToText(),
                  awaited);
  json["versions"] = VersionsJson(map);
  absl::StrAppend(&text, VersionsText(map));
  return context.Answer(json, text);
}

}  // namespace

void AddServeCommands(CLI::App* serve, CommandContext* context) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* add = serve->add_subcommand(
      "add", "Let serving servers have read copies of tables, which follow their changes");
  add->add_option("TABLES", flags->tables, "Names of the tables")->required();
  std::vector<std::string> formats;
  for (const auto& [name, value] : Formats()) formats.push_back(name);
  add->add_option("--format", flags->format,
                  "How rows are kept and served; without it fp32. A table that is served keeps "
                  "what is not given")
      ->check(CLI::IsMember(formats));
  add->add_option("--replicas", flags->replicas,
                  "Number of servers that have each part of a table; MIN..MAX, as 2..6: as many as "
                  "lookups demand, by the coordinator's --copy-rows-per-s-max. Without it one, or "
                  "as many as a table that is served has")
      ->check([](const std::string& text) {
        return std::string(ParseCopies(text).status().message());
      });
  add->add_option("--parts", flags->parts,
                  "Number of parts that each table is cut into, of which a server has one. 0: as "
                  "it is, and one at first. A table that is served answers from the parts that it "
                  "has until the others are loaded. Where a part fits no server, it is cut "
                  "further; parts above this number are joined again where servers have room")
      ->check(CLI::Range(0u, kServedPartsMax))
      ->capture_default_str();
  add->add_option("--staleness-max", flags->staleness_max,
                  "A copy that is older refuses lookups, such as 30s; 0: it never does. Without "
                  "it 0, or as a table that is served has it")
      ->check(WrongStaleness);
  add->add_flag("--dry-run", flags->dry_run, "Print where the tables would be; change nothing");
  context->Runs(add,
                [context, flags] { return Change(v1::ServeTablesRequest::ADD, *flags, *context); });
  auto removed = std::make_shared<ServeFlags>();
  CLI::App* remove = serve->add_subcommand("remove", "End the serving of tables");
  remove->add_option("TABLES", removed->tables, "Names of the tables")->required();
  remove->add_flag("--dry-run", removed->dry_run, "Print what would end; change nothing");
  context->Runs(remove, [context, removed] {
    return Change(v1::ServeTablesRequest::REMOVE, *removed, *context);
  });
  context->Runs(
      serve->add_subcommand("status", "Print serving servers, their tables, and versions"),
      [context] { return Status(*context); });
}

}  // namespace hotbed
