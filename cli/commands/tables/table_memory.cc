// hotbed table memory: bytes by table, shard and tier, as the servers count them now, or of a table
// that is not there yet.
#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/cluster/http_get.h"
#include "cli/commands/tables/table_flags.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_file.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "common/tables/table_size.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "proto/convert.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

struct MemoryFlags {
  std::string name;
  bool shards = false;  // a line for each
  bool estimate = false;
  uint64_t parts = 1;
  uint64_t block_dim = 0;
  uint64_t quotient = 0;
  GivenOptions given;
};

// A replica of a shard, or the sum of several.
struct TierBytes {
  uint64_t replicas = 0;
  // Host memory: rows x weights + rows x state + overhead.
  uint64_t rows = 0;
  TableSize host;
  uint64_t overhead_bytes = 0;
  uint64_t host_bytes = 0;  // as the server counts it
  // Device memory: rows x (weights + state).
  uint64_t device_rows = 0;
  uint64_t device_bytes = 0;
  uint64_t all_bytes = 0;  // over all tiers, with the disk; an estimate

  void Add(const TierBytes& other) {
    replicas += other.replicas;
    rows += other.rows;
    host.weight_bytes += other.host.weight_bytes;
    host.state_bytes += other.host.state_bytes;
    overhead_bytes += other.overhead_bytes;
    host_bytes += other.host_bytes;
    device_rows += other.device_rows;
    device_bytes += other.device_bytes;
    all_bytes += other.all_bytes;
  }
  Json ToJson() const {
    return {{"replicas", replicas},
            {"rows", rows},
            {"weight_bytes", host.weight_bytes},
            {"state_bytes", host.state_bytes},
            {"overhead_bytes", overhead_bytes},
            {"host_bytes", host_bytes},
            {"device_rows", device_rows},
            {"device_bytes", device_bytes},
            {"all_tiers_bytes", all_bytes}};
  }
  std::vector<std::string> Cells() const {
    return {WithCommas(rows),
            FormatBytes(host.weight_bytes),
            FormatBytes(host.state_bytes),
            FormatBytes(overhead_bytes),
            FormatBytes(host_bytes),
            FormatBytes(device_bytes),
            FormatBytes(all_bytes)};
  }
};

// `shard` is an element of "shards" in a server's /api/status.
TierBytes BytesOf(const TableSpec& spec, uint32_t columns, const Json& shard) {
  TierBytes bytes;
  bytes.replicas = 1;
  bytes.device_rows = shard.value("device_rows", uint64_t{0});
  bytes.rows = shard.value("rows_resident", uint64_t{0}) - bytes.device_rows;
  bytes.host = SizeOfRows(spec, bytes.rows, columns);
  bytes.overhead_bytes = shard.value("overhead_bytes", uint64_t{0});
  bytes.host_bytes = shard.value("hot_bytes", uint64_t{0});
  bytes.device_bytes = shard.value("device_bytes", uint64_t{0});
  bytes.all_bytes = shard.value("bytes", uint64_t{0});
  return bytes;
}

absl::StatusOr<Json> StatusOf(const v1::ServerInfo& server, absl::Duration timeout) {
  HOTBED_ASSIGN_OR_RETURN(const HttpReply reply,
                          HttpGet(server.admin_address(), "/api/status", timeout));
  Json status = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (reply.code == 200 && status.is_object()) return status;
  return absl::UnavailableError(
      absl::StrCat("http://", server.admin_address(), "/api/status answers ", reply.code, ": ",
                   reply.code == 200 ? "no JSON of a server" : reply.body.substr(0, 300)));
}

class MemoryReport {
 public:
  absl::Status Read(const v1::ClusterMap& map, const std::string& name, absl::Duration timeout) {
    for (const v1::TableSpec& table : map.tables()) {
      if (!name.empty() && table.name() != name) continue;
      HOTBED_ASSIGN_OR_RETURN(tables_[table.id()].spec, FromProto(table));
    }
    std::map<std::string, const v1::ShardRecord*> records;  // by the servers' name of the shard
    for (const v1::ShardRecord& record : map.shards()) {
      const ShardId id = ShardId::FromPacked(record.shard());
      records[absl::StrCat(id.table, "/", id.index)] = &record;
    }
    for (const v1::ServerInfo& server : map.servers()) {
      if (!server.live()) continue;
      HOTBED_ASSIGN_OR_RETURN(const Json status, StatusOf(server, timeout));
      AddServer(server.name(), status);
      for (const Json& shard : status.value("shards", Json::array())) {
        const auto record = records.find(shard.value("shard", ""));
        if (record != records.end()) AddShard(server.name(), *record->second, shard);
      }
    }
    return absl::OkStatus();
  }

  Json ToJson() const {
    Json tables = Json::array();
    for (const auto& [id, table] : tables_) {
      Json one = {{"name", table.spec.name},
                  {"weight_bytes_per_row", table.spec.weight_bytes_per_row()},
                  {"state_bytes_per_row", table.spec.state_bytes_per_row()}};
      one.update(table.sum.ToJson());
      one["shards"] = Json::array();
      for (const Shard& shard : table.shards) {
        Json replica = {
            {"shard", shard.name}, {"server", shard.server}, {"columns", shard.columns}};
        replica.update(shard.bytes.ToJson());
        one["shards"].push_back(std::move(replica));
      }
      tables.push_back(std::move(one));
    }
    return {{"tables", tables}, {"servers", servers_}};
  }

  std::string ToText(bool with_shards) const {
    TablePrinter tables(
        Heads({with_shards ? "shard" : "table", with_shards ? "server" : "replicas"}));
    for (const auto& [id, table] : tables_) {
      for (const Shard& shard : table.shards) {
        if (with_shards) tables.AddRow(Cells(shard.name, shard.server, shard.bytes));
      }
      if (!with_shards) {
        tables.AddRow(Cells(table.spec.name, absl::StrCat(table.sum.replicas), table.sum));
      }
    }
    TablePrinter servers(
        {"server", "shards", "memory", "for coming rows", "together", "of", "beside it"});
    for (const Json& server : servers_) {
      const auto bytes = [&server](const char* key) {
        return FormatBytes(server[key].get<uint64_t>());
      };
      servers.AddRow({server["name"], absl::StrCat(server["shards"].get<uint64_t>()),
                      bytes("host_bytes"), bytes("granted_bytes"), bytes("hot_bytes"),
                      bytes("limit_bytes"), bytes("shard_bytes")});
    }
    return absl::StrCat(tables.ToText(), "\n", servers.ToText());
  }

 private:
  struct Shard {
    std::string name, server;
    uint32_t columns = 0;
    TierBytes bytes;
  };
  struct Table {
    TableSpec spec;
    TierBytes sum;
    std::vector<Shard> shards;
  };

  static std::vector<std::string> Heads(std::vector<std::string> heads) {
    for (const char* head :
         {"rows", "weights", "state", "overhead", "memory", "on device", "all tiers"}) {
      heads.push_back(head);
    }
    return heads;
  }
  static std::vector<std::string> Cells(const std::string& name, const std::string& second,
                                        const TierBytes& bytes) {
    std::vector<std::string> cells = bytes.Cells();
    cells.insert(cells.begin(), {name, second});
    return cells;
  }

  void AddShard(const std::string& server, const v1::ShardRecord& record, const Json& status) {
    const auto table = tables_.find(ShardId::FromPacked(record.shard()).table);
    if (table == tables_.end()) return;
    const uint32_t columns = record.column_limit() - record.column_first();
    const TierBytes bytes = BytesOf(table->second.spec, columns, status);
    table->second.sum.Add(bytes);
    table->second.shards.push_back({status.value("shard", ""), server, columns, bytes});
  }
  void AddServer(const std::string& name, const Json& status) {
    const auto number = [&status](const char* key) { return status.value(key, uint64_t{0}); };
    const Json shards = status.value("shards", Json::array());
    uint64_t of_shards = 0;
    for (const Json& shard : shards) of_shards += shard.value("hot_bytes", uint64_t{0});
    const uint64_t all = number("hot_bytes");
    servers_.push_back({{"name", name},
                        {"shards", shards.size()},
                        {"host_bytes", of_shards},
                        {"granted_bytes", all - std::min(of_shards, all)},
                        {"hot_bytes", all},
                        {"shard_bytes", number("shard_bytes")},
                        {"limit_bytes", number("hot_bytes_limit")}});
  }

  std::map<uint32_t, Table> tables_;
  Json servers_ = Json::array();
};

// --- of a table that is not there yet

absl::Status Estimate(const CommandContext& context, const MemoryFlags& flags) {
  TableSpec spec = DefaultTableSpec();
  spec.name = flags.name.empty() ? "table" : flags.name;
  for (const auto& [option, text] : flags.given) {
    HOTBED_RETURN_IF_ERROR(SetTableOption(*option, text, &spec));
  }
  HOTBED_RETURN_IF_ERROR(NamingItsFlag(ValidateTableSpec(spec)));
  const uint64_t parts = flags.parts;
  if (parts == 0 || (spec.rows > 0 && parts > spec.rows)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parts is ", parts, "; allowed: 1..", spec.rows, ", the rows"));
  }
  const TableSize all = SizeOfTable(spec, spec.rows);
  const TableSize part = SizeOfTable(spec, (spec.rows + parts - 1) / parts);
  const uint64_t plain = spec.rows * spec.dim;
  Json json = {{"rows", spec.rows},
               {"dim", spec.dim},
               {"weight_bytes", all.weight_bytes},
               {"state_bytes", all.state_bytes},
               {"bytes", all.bytes()},
               {"shards", parts},
               {"largest_shard_bytes", part.bytes()},
               {"elements", plain}};
  TablePrinter facts({"rows x dim x bytes", absl::StrCat(WithCommas(spec.rows), " x ", spec.dim)});
  const auto add = [&facts](const char* what, uint64_t bytes) {
    facts.AddRow({what, absl::StrCat(WithCommas(bytes), " bytes, ", FormatBytes(bytes))});
  };
  add("weights", all.weight_bytes);
  add("optimizer state", all.state_bytes);
  add("both", all.bytes());
  if (parts > 1) add("the largest shard", part.bytes());
  const auto add_form = [&](const char* key, const std::string& what, uint64_t elements) {
    json[key] = {{"elements", elements},
                 {"saved_elements", static_cast<int64_t>(plain) - static_cast<int64_t>(elements)}};
    facts.AddRow({what, absl::StrCat(WithCommas(elements), " elements of ", WithCommas(plain))});
  };
  if (flags.block_dim > 0) {
    add_form("block", absl::StrCat("rows of ", flags.block_dim, " and a matrix per shard"),
             BlockElements(spec.rows, spec.dim, flags.block_dim, parts));
  }
  if (flags.quotient > 0) {
    add_form("quotient_remainder",
             absl::StrCat("tables of ", QuotientRows(spec.rows, flags.quotient), " and ",
                          flags.quotient, " rows"),
             QuotientRemainderElements(spec.rows, spec.dim, flags.quotient));
  }
  return context.Answer(json, facts.ToText());
}

absl::Status Memory(const CommandContext& context, const MemoryFlags& flags) {
  if (flags.estimate) return Estimate(context, flags);
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  if (!flags.name.empty()) HOTBED_RETURN_IF_ERROR(FindTable(map, flags.name).status());
  MemoryReport report;
  HOTBED_RETURN_IF_ERROR(report.Read(map, flags.name, context.timeout_duration()));
  return context.Answer(report.ToJson(), report.ToText(flags.shards));
}

}  // namespace

void AddTableMemoryCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<MemoryFlags>();
  CLI::App* app = table->add_subcommand(
      "memory",
      "Print the bytes of tables by tier, as the servers count them; with --estimate, those of a "
      "table that is not there, from the flags of 'table create'");
  app->add_option("NAME", flags->name, "Name of the table; all if not given");
  app->add_flag("--by-shard", flags->shards, "A line per replica of a shard (-o json has them)");
  CLI::Option* const estimate =
      app->add_flag("--estimate", flags->estimate, "rows x dim x bytes; asks no cluster");
  app->add_option("--parts", flags->parts, "Estimate: shards of even size")->needs(estimate);
  app->add_option("--block-dim", flags->block_dim,
                  "Estimate: also as rows of so many elements, and a matrix that widens them")
      ->needs(estimate);
  app->add_option("--quotient", flags->quotient,
                  "Estimate: also as a table of rows / N, and one of N rows")
      ->needs(estimate);
  AddTableFlags(app, /*only_changing=*/false, &flags->given);
  context->Runs(app, [context, flags] { return Memory(*context, *flags); });
}

}  // namespace hotbed
