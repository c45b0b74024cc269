#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/base/row_id.h"
#include "cli/tables/composed_text.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "hotbed/client.h"
#include "hotbed/row_life.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr uint32_t kWeightsShown = 8;  // per row, on a terminal

struct RowGetFlags {
  std::string table;
  std::vector<std::string> ids;
  bool all = false;
  bool partial = false;
};

struct Rows {
  std::vector<uint64_t> ids;
  std::vector<float> weights;  // ids x dim
  std::vector<uint8_t> exists;
  std::vector<uint8_t> missing;  // no server answered in time
  std::vector<RowLife> life;     // per id, where the table keeps touches
};

absl::StatusOr<Rows> Fetch(const CommandContext& context, const RowGetFlags& flags) {
  Rows rows;
  for (const std::string& text : flags.ids) {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t id, ParseId(text));
    rows.ids.push_back(id);
  }
  ClientOptions options;
  options.deadline = context.timeout_duration();
  if (flags.partial) options.read_from = ReadFrom::kAny;
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                          Client::Connect(absl::StrCat("hotbed://", context.coordinator), options));
  HOTBED_ASSIGN_OR_RETURN(const Table* table, client->OpenTable(flags.table));
  rows.weights.resize(rows.ids.size() * table->dim());
  rows.exists.resize(rows.ids.size());
  rows.missing.resize(rows.ids.size());
  PullFeature feature{table, rows.ids, rows.weights.data(), RowType::kFp32, rows.exists.data()};
  if (flags.partial) feature.missing = rows.missing.data();
  HOTBED_RETURN_IF_ERROR(client->Lookup({&feature, 1}).Wait());
  if (table->options().optimizer.touches && !flags.partial) {
    HOTBED_ASSIGN_OR_RETURN(rows.life, ReadTouches(client.get(), table, rows.ids));
  }
  return rows;
}

std::string WeightsText(const float* weights, uint32_t dim, bool all) {
  std::string out = "[";
  const uint32_t shown = all ? dim : std::min(dim, kWeightsShown);
  for (uint32_t i = 0; i < shown; ++i)
    absl::StrAppendFormat(&out, "%s%.6g", i == 0 ? "" : ", ", weights[i]);
  if (shown < dim) absl::StrAppend(&out, ", ... ", dim - shown, " more");
  return out + "]";
}

nlohmann::ordered_json TouchesJson(const RowLife& life, bool shows) {
  nlohmann::ordered_json json = {{"count", life.touches},
                                 {"time_s", life.time_s},
                                 {"step", life.step},
                                 {"candidate", life.candidate}};
  if (shows) json["shows"] = life.shows;
  if (shows) json["clicks"] = life.clicks;
  return json;
}

std::string TouchesText(const RowLife& life, bool shows) {
  if (life.touches == 0) return "0";
  return absl::StrCat(
      life.touches, life.candidate ? " (candidate)" : "", ", last in step ", life.step, " at ",
      absl::FormatTime(absl::FromUnixSeconds(life.time_s)),
      shows ? absl::StrCat("; ", life.shows, " shows, ", life.clicks, " clicks") : "");
}

// By column slice; at least one each.
struct RowPlace {
  std::vector<std::string> shards;
  std::vector<std::string> servers;
};

RowPlace PlaceOf(const v1::ClusterMap& map, const std::vector<const v1::ShardRecord*>& shards) {
  RowPlace place;
  for (const v1::ShardRecord* shard : shards) {
    place.shards.push_back(ShardName(map, shard->shard()));
    place.servers.push_back(ServerName(map, shard->primary().server()));
  }
  if (shards.empty()) return {{"none"}, {"none"}};
  return place;
}

absl::Status Get(const CommandContext& context, const RowGetFlags& flags) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  const std::vector<TableSpec> parts = FindParts(map, flags.table);
  TableSpec spec;
  if (parts.empty()) {
    HOTBED_ASSIGN_OR_RETURN(spec, FindTable(map, flags.table));
  } else {
    spec = ComposedOf(parts);  // whose rows are in no shard
  }
  if (!parts.empty() && flags.partial) {
    return absl::InvalidArgumentError(
        absl::StrCat("--partial: table '", flags.table,
                     "' is composed, and a row is made of all of its parts; leave it out"));
  }
  HOTBED_ASSIGN_OR_RETURN(const Rows rows, Fetch(context, flags));
  const std::vector<v1::ShardRecord> shards =
      parts.empty() ? ShardsOf(map, spec.id) : std::vector<v1::ShardRecord>();
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TablePrinter printer({"id", "exists", "touches", "shard", "server", "weights"});
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const RowPlace place = PlaceOf(map, ShardsOfId(spec, shards, rows.ids[i]));
    const float* weights = rows.weights.data() + i * spec.dim;
    const bool missing = rows.missing[i] != 0;
    json.push_back({{"id", rows.ids[i]},
                    {"exists", rows.exists[i] != 0},
                    {"missing", missing},
                    {"shard", place.shards.front()},
                    {"server", place.servers.front()},
                    {"weights", std::vector<float>(weights, weights + spec.dim)}});
    if (spec.column_slices > 1 && parts.empty()) {
      json.back()["slices"] = {{"shards", place.shards}, {"servers", place.servers}};
    }
    if (!rows.life.empty())
      json.back()["touches"] = TouchesJson(rows.life[i], spec.optimizer.shows.kept);
    printer.AddRow({absl::StrCat(rows.ids[i]),
                    missing               ? "?"
                    : rows.exists[i] != 0 ? "yes"
                                          : "no",
                    rows.life.empty() ? "-" : TouchesText(rows.life[i], spec.optimizer.shows.kept),
                    absl::StrJoin(place.shards, " "), absl::StrJoin(place.servers, " "),
                    missing ? "not answered" : WeightsText(weights, spec.dim, flags.all)});
  }
  std::string text = printer.ToText();
  const auto missing = std::count(rows.missing.begin(), rows.missing.end(), 1);
  if (!parts.empty()) {
    absl::StrAppend(&text, "made by the client: ", RowFormula(spec), "\n");
  } else if (std::count(rows.exists.begin(), rows.exists.end(), 0) > missing) {
    absl::StrAppend(&text,
                    "exists no: there is no row (never pushed, deleted, or not admitted yet); its "
                    "first value is shown (",
                    InitializerText(spec.initializer), ")\n");
  }
  return context.Answer(json, text);
}

}  // namespace

void AddRowGetCommand(CLI::App* row, CommandContext* context) {
  auto flags = std::make_shared<RowGetFlags>();
  CLI::App* app =
      row->add_subcommand("get", "Print rows by their ids, with the servers that hold them");
  app->add_option("TABLE", flags->table, "Name of the table")->required();
  app->add_option("ID", flags->ids,
                  "0..18446744073709551615, 0x hexadecimal, or negative (its 64 bits)")
      ->required()
      ->expected(1, 1000)
      ->check(
          [](const std::string& text) { return std::string(ParseId(text).status().message()); });
  app->add_flag("--all", flags->all, "Print every weight of a row, not the first eight");
  app->add_flag("--partial", flags->partial,
                "Print what can be had within --timeout, also where servers do not answer");
  context->Runs(app, [context, flags] { return Get(*context, *flags); });
}

}  // namespace hotbed
