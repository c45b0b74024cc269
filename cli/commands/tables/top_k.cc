// hotbed topk: the rows of a table that are nearest to a vector.
#include "hotbed/top_k.h"

#include <CLI/App.hpp>
#include <charconv>
#include <cmath>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/command.h"
#include "cli/base/row_id.h"
#include "cli/commands/refuse_usage.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "hotbed/client.h"
#include "hotbed/serving.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct TopKFlags {
  std::string table;
  std::string vector_file;
  std::vector<std::string> ids;
  uint32_t k = 10;
  std::string metric = "dot";
  std::string filter;
  uint64_t first = 0;
  uint64_t last = ~uint64_t{0};
  bool served = false;
  std::string version;
};

absl::StatusOr<RowMetric> TopKMetricOf(const std::string& word) {
  if (word == "dot") return RowMetric::kDot;
  if (word == "cosine") return RowMetric::kCosine;
  if (word == "l2") return RowMetric::kL2;
  return absl::InvalidArgumentError(
      absl::StrCat("--metric is ", word, ", allowed: dot, cosine, l2"));
}

absl::Status CheckTopKFlags(const TopKFlags& flags) {
  if (flags.vector_file.empty() == flags.ids.empty()) {
    return absl::InvalidArgumentError("give either --vector-file or --id");
  }
  if (!flags.version.empty() && !flags.served) {
    return absl::InvalidArgumentError(absl::StrCat("--version is ", flags.version,
                                                   ": only served copies have versions; add "
                                                   "--served"));
  }
  if (flags.k < 1 || flags.k > kTopKMax) {
    return absl::InvalidArgumentError(absl::StrCat("--k is ", flags.k, ", allowed: 1..", kTopKMax));
  }
  return TopKMetricOf(flags.metric).status();
}

// Of tables whose rows no server has whole; said before a row is looked for. Served copies have the
// slices of a row together.
absl::Status CheckTopKTable(const TableOptions& table, bool served) {
  if (IsComposed(table)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name, " is composed: no server holds its rows, allowed: plain tables"));
  }
  if (table.column_slices <= 1 || served) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", table.name, " has ", table.column_slices,
      " column slices, and no server has whole rows of it but serving servers: add --served"));
}

absl::StatusOr<std::string> ReadTopKText(const std::string& path) {
  if (path != "-") return FileSystem::Real()->ReadAll(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// A vector per line: numbers between spaces, commas or brackets.
absl::StatusOr<std::vector<float>> ReadTopKVectors(const std::string& path, const Table& table) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadTopKText(path));
  std::vector<float> vectors;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const size_t before = vectors.size();
    for (const absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t\r,[]"), absl::SkipEmpty())) {
      float value = 0;
      if (!absl::SimpleAtof(word, &value)) {
        return absl::InvalidArgumentError(absl::StrCat("--vector-file ", path, " line ", number,
                                                       ": \"", word.substr(0, 40),
                                                       "\" is no number"));
      }
      vectors.push_back(value);
    }
    const size_t elements = vectors.size() - before;
    if (elements == 0 || elements == table.dim()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--vector-file ", path, " line ", number, " has ", elements,
                     " numbers, allowed: ", table.dim(), ", the dim of table ", table.name()));
  }
  if (!vectors.empty()) return vectors;
  return absl::InvalidArgumentError(
      absl::StrCat("--vector-file ", path, " has no vector; give one per line"));
}

absl::StatusOr<std::vector<uint64_t>> ReadTopKIds(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadTopKText(path));
  std::vector<uint64_t> ids;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n,"), absl::SkipEmpty())) {
    const absl::StatusOr<uint64_t> id = ParseId(std::string(word));
    if (!id.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--filter ", path, ": ", id.status().message()));
    }
    ids.push_back(*id);
  }
  return ids;
}

// The rows of ids, which take the place of vectors.
absl::StatusOr<std::vector<float>> TopKRowsOf(const std::vector<uint64_t>& ids, const Table& table,
                                              Client* client) {
  std::vector<float> rows(ids.size() * table.dim());
  std::vector<uint8_t> exists(ids.size());
  const PullFeature feature{&table, ids, rows.data(), RowType::kFp32, exists.data()};
  HOTBED_RETURN_IF_ERROR(client->Lookup({&feature, 1}).Wait());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (exists[i] != 0) continue;
    return absl::NotFoundError(absl::StrCat("--id ", ids[i], ": table ", table.name(),
                                            " has no such row; rows come to exist when they are "
                                            "pushed"));
  }
  return rows;
}

// The shortest text that reads back as the same number; JSON has no NaN.
std::string TopKScoreText(double score) {
  if (!std::isfinite(score)) return std::isnan(score) ? "nan" : score > 0 ? "inf" : "-inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), score).ptr};
}

absl::Status PrintTopK(const CommandContext& context, const std::vector<uint64_t>& ids,
                       const std::vector<std::vector<ScoredRow>>& nearest) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TablePrinter printer({"vector", "rank", "id", "score"});
  for (size_t v = 0; v < nearest.size(); ++v) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    const std::string name = ids.empty() ? absl::StrCat(v) : absl::StrCat("id ", ids[v]);
    for (size_t i = 0; i < nearest[v].size(); ++i) {
      const ScoredRow& row = nearest[v][i];
      nlohmann::ordered_json& one = rows.emplace_back();
      one["id"] = row.id;
      one["score"] = nullptr;
      if (std::isfinite(row.score)) one["score"] = row.score;
      printer.AddRow({name, absl::StrCat(i + 1), absl::StrCat(row.id), TopKScoreText(row.score)});
    }
    nlohmann::ordered_json& answer = json.emplace_back();
    answer["vector"] = v;
    if (!ids.empty()) answer["of_id"] = ids[v];
    answer["rows"] = std::move(rows);
  }
  return context.Answer(json, printer.ToText());
}

// The same of a served copy.
absl::StatusOr<std::vector<float>> ServedRowsOf(const std::vector<uint64_t>& ids,
                                                const std::string& table,
                                                const ServingLookupOptions& options,
                                                ServingClient* client) {
  HOTBED_ASSIGN_OR_RETURN(std::vector<ServingRows> rows,
                          client->Lookup({{.table = table, .ids = ids}}, options));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (rows[0].exists[i] != 0) continue;
    return absl::NotFoundError(absl::StrCat("--id ", ids[i], ": table ", table, " as served by ",
                                            rows[0].server, " has no such row"));
  }
  return std::move(rows[0].values);
}

// Searches the copies of serving servers.
absl::StatusOr<std::vector<std::vector<ScoredRow>>> SearchServed(const CommandContext& context,
                                                                 const TopKFlags& flags,
                                                                 const Table& table,
                                                                 const std::vector<uint64_t>& ids,
                                                                 const TopKOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ServingClient> client,
                          ServingClient::Connect(absl::StrCat("hotbed://", context.coordinator),
                                                 {.connect_timeout = context.timeout_duration()}));
  const ServingLookupOptions lookup = {.timeout = context.timeout_duration(),
                                       .version = flags.version};
  HOTBED_ASSIGN_OR_RETURN(const std::vector<float> vectors,
                          ids.empty() ? ReadTopKVectors(flags.vector_file, table)
                                      : ServedRowsOf(ids, flags.table, lookup, client.get()));
  const ServingTopKOptions served = {.timeout = context.timeout_duration(),
                                     .version = flags.version,
                                     .metric = options.metric,
                                     .only_ids = options.only_ids,
                                     .first_id = options.first_id,
                                     .last_id = options.last_id};
  HOTBED_ASSIGN_OR_RETURN(ServingNearest nearest,
                          client->TopK(flags.table, vectors, flags.k, served));
  return std::move(nearest.rows);
}

absl::Status SearchTopK(const CommandContext& context, const TopKFlags& flags) {
  TopKOptions options;
  HOTBED_ASSIGN_OR_RETURN(options.metric, TopKMetricOf(flags.metric));
  options.first_id = flags.first;
  options.last_id = flags.last;
  std::vector<uint64_t> only;
  if (!flags.filter.empty()) {
    HOTBED_ASSIGN_OR_RETURN(only, ReadTopKIds(flags.filter));
    options.only_ids = only;
  }
  std::vector<uint64_t> ids;
  for (const std::string& text : flags.ids) {
    HOTBED_ASSIGN_OR_RETURN(ids.emplace_back(), ParseId(text));
  }
  ClientOptions connection;
  connection.deadline = context.timeout_duration();
  HOTBED_ASSIGN_OR_RETURN(
      const std::unique_ptr<Client> client,
      Client::Connect(absl::StrCat("hotbed://", context.coordinator), connection));
  HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(flags.table));
  HOTBED_RETURN_IF_ERROR(CheckTopKTable(table->options(), flags.served));
  if (flags.served) {
    HOTBED_ASSIGN_OR_RETURN(const auto nearest, SearchServed(context, flags, *table, ids, options));
    return PrintTopK(context, ids, nearest);
  }
  HOTBED_ASSIGN_OR_RETURN(const std::vector<float> vectors,
                          ids.empty() ? ReadTopKVectors(flags.vector_file, *table)
                                      : TopKRowsOf(ids, *table, client.get()));
  HOTBED_ASSIGN_OR_RETURN(const auto nearest, TopK(client.get(), table, vectors, flags.k, options));
  return PrintTopK(context, ids, nearest);
}

}  // namespace

void AddTopKCommand(CLI::App* root, CommandContext* context) {
  auto flags = std::make_shared<TopKFlags>();
  CLI::App* app = root->add_subcommand(
      "topk", "Print the rows of a table that are nearest to a vector, exactly");
  app->add_option("TABLE", flags->table, "Name of the table")->required();
  app->add_option("--vector-file", flags->vector_file,
                  "A vector per line, as numbers between spaces or commas; '-': standard input");
  app->add_option("--id", flags->ids, "Rows whose weights are the vectors")
      ->expected(1, 1000)
      ->check(
          [](const std::string& text) { return std::string(ParseId(text).status().message()); });
  app->add_option("--k", flags->k, "Rows per vector, 1..16384")->capture_default_str();
  app->add_option("--metric", flags->metric,
                  "dot or cosine, the largest first; l2 (the square of the distance), the smallest "
                  "first")
      ->capture_default_str();
  app->add_option("--filter", flags->filter,
                  "A file of ids, at most 1000000: only these rows; '-': standard input");
  app->add_option("--first", flags->first, "The least id of a row")->capture_default_str();
  app->add_option("--last", flags->last, "The greatest id of a row")->capture_default_str();
  app->add_flag(
      "--served", flags->served,
      "Search a copy for inference ('hotbed serve') and not the servers that trainers use");
  app->add_option("--version", flags->version,
                  "With --served: current, current/MODEL, or the name of a version; otherwise the "
                  "newest rows");
  app->callback([context, flags] {
    RefuseUsage(CheckTopKFlags(*flags));
    context->run = [context, flags] { return SearchTopK(*context, *flags); };
  });
}

}  // namespace hotbed
