#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/tables/table_flags.h"
#include "cli/shards/live_view.h"
#include "cli/shards/plan_file.h"
#include "cli/tables/composed_text.h"
#include "cli/tables/id_histogram.h"
#include "cli/tables/table_file.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "config/config.h"
#include "hotbed/composed.h"
#include "hotbed/feature_split.h"
#include "planner/plan_on_cluster.h"
#include "proto/convert.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr uint32_t kShardsMax = 1024;  // per table; the coordinator checks again

struct TableCreateFlags {
  std::string name;
  GivenOptions given;
  TableSpec spec;         // from the name and the given flags
  std::string file;       // empty: the one table of the other flags
  std::string histogram;  // file of the counts of ids; empty: none
  uint32_t blocks = 4;    // with histogram
  std::string plan;  // file of a plan that places the tables of `file`; empty: the coordinator does
  uint32_t shards = 0;
  bool if_not_exists = false;
  bool even_slices = false;
  bool dry_run = false;
};

// With --even-slices: InvalidArgument names the dim and the slices that do not divide it.
absl::Status CheckSlices(const TableCreateFlags& flags, const TableSpec& spec) {
  if (!flags.even_slices) return absl::OkStatus();
  const absl::Status even = CheckEvenSlices(spec.dim, std::max<uint32_t>(spec.column_slices, 1));
  if (even.ok()) return even;
  return absl::InvalidArgumentError(
      absl::StrCat("--even-slices: table ", spec.name, ": ", even.message()));
}

size_t Servers(const v1::CreateTableReply& reply) {
  std::set<uint64_t> servers;
  for (const v1::ShardRecord& shard : reply.shards()) servers.insert(shard.primary().server());
  return servers.size();
}

nlohmann::ordered_json CreatedJson(const v1::CreateTableReply& reply, const TableSpec& spec,
                                   bool dry_run) {
  nlohmann::ordered_json json = TableJson(spec);
  json["created"] = reply.created();
  json["dry_run"] = dry_run;
  json["shards"] = reply.shards_size();
  json["servers"] = Servers(reply);
  return json;
}

double BytesWhenFull(const TableSpec& spec, size_t servers) {
  const auto row_bytes =
      static_cast<double>(spec.weight_bytes_per_row() + spec.state_bytes_per_row());
  const size_t replicas = spec.data_parallel ? servers : std::max<size_t>(1, spec.replicas);
  return static_cast<double>(spec.rows) * row_bytes * static_cast<double>(replicas);
}

// Says on stderr if the tables, with all their rows written, do not fit on the cluster's disks.
// They are created all the same: servers may be added before that.
absl::Status WarnWhereTooLarge(const CommandContext& context, CoordinatorStub* coordinator,
                               const std::vector<TableSpec>& tables) {
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  size_t servers = 0;
  double room = 0;
  for (const v1::ServerInfo& server : map.servers()) {
    if (!server.live() || server.draining()) continue;
    if (!server.load().has_free_bytes()) return absl::OkStatus();  // it has not said it yet
    ++servers;
    room += static_cast<double>(server.load().free_bytes());
  }
  double needed = 0;
  for (const TableSpec& table : tables) needed += BytesWhenFull(table, servers);
  if (servers == 0 || needed <= room) return absl::OkStatus();
  *context.err << "warning: "
               << (tables.size() == 1 ? absl::StrCat("table '", tables.front().name, "' takes ")
                                      : absl::StrCat(tables.size(), " tables take "))
               << FormatBytes(static_cast<uint64_t>(std::min(needed, 1e18)))
               << " with all replicas when full, and the disks of the live servers (" << servers
               << ") have room for " << FormatBytes(static_cast<uint64_t>(room))
               << " of rows; pushes beyond that are refused: add servers or disks in time, or drop "
                  "the table\n";
  return absl::OkStatus();
}

absl::Status Create(const CommandContext& context, const TableCreateFlags& flags) {
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(flags.spec);
  request.set_if_not_exists(flags.if_not_exists);
  request.set_dry_run(flags.dry_run);
  request.set_shards(flags.shards);
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_RETURN_IF_ERROR(WarnWhereTooLarge(context, &coordinator, {flags.spec}));
  HOTBED_ASSIGN_OR_RETURN(const v1::CreateTableReply reply, coordinator.CreateTable(request));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(reply.spec()));
  const char* did = flags.dry_run     ? "would create table '"
                    : reply.created() ? "created table '"
                                      : "there already, and equal: table '";
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  return context.Answer(
      CreatedJson(reply, spec, flags.dry_run),
      absl::StrCat(
          did, spec.name, "' (", KindText(spec), ", dim ", spec.dim, ", ",
          OptimizerText(spec.optimizer), ", init ", InitializerText(spec.initializer), ")\n  ",
          reply.shards_size(), reply.shards_size() == 1 ? " shard on " : " shards on ",
          Servers(reply), Servers(reply) == 1 ? " server" : " servers",
          spec.rows == 0 ? ""
                         : absl::StrCat(", ", FormatBytes(spec.rows * row_bytes), " when full"),
          "\n"));
}

// Adds the table, or the parts of a composed one.
absl::Status AddTables(const TableSpec& spec, uint32_t shards, v1::CreateTablesRequest* request) {
  std::vector<TableSpec> tables = {spec};
  if (IsComposed(spec)) {
    HOTBED_ASSIGN_OR_RETURN(tables, PartsOf(spec));
  }
  for (const TableSpec& table : tables) {
    v1::NewTable& one = *request->add_tables();
    *one.mutable_spec() = ToProto(table);
    one.set_shards(shards);
  }
  return absl::OkStatus();
}

// Creates the parts of a composed table; with counts, by a client, which also writes their order.
absl::Status CreateParts(const CommandContext& context, const TableCreateFlags& flags,
                         const v1::CreateTablesRequest& request, absl::Span<const uint64_t> counts,
                         CoordinatorStub* coordinator, v1::CreateTablesReply* reply) {
  v1::CreateTablesRequest dry = request;
  if (!counts.empty()) dry.set_dry_run(true);
  HOTBED_ASSIGN_OR_RETURN(*reply, coordinator->CreateTables(dry));
  if (counts.empty() || flags.dry_run) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                          Client::Connect(absl::StrCat("hotbed://", context.coordinator)));
  const bool there = flags.if_not_exists && client->OpenTable(flags.name).ok();
  for (v1::CreateTableReply& one : *reply->mutable_tables()) one.set_created(!there);
  return CreateTableByFrequency(client.get(), flags.spec, counts, flags.blocks, flags.if_not_exists)
      .status();
}

absl::Status CreateComposed(const CommandContext& context, TableCreateFlags flags) {
  std::vector<uint64_t> counts;
  if (!flags.histogram.empty()) {
    HOTBED_ASSIGN_OR_RETURN(counts, ReadHistogram(flags.histogram));
    HOTBED_ASSIGN_OR_RETURN(const FrequencyOrder order,
                            OrderByFrequency(counts, flags.spec.dim, flags.blocks));
    flags.spec.rows = counts.size();
    flags.spec.composition.form = ComposeForm::kFrequency;
    flags.spec.composition.block_dims = order.block_dims;
  }
  v1::CreateTablesRequest request;
  HOTBED_RETURN_IF_ERROR(AddTables(flags.spec, 0, &request));
  request.set_if_not_exists(flags.if_not_exists);
  request.set_dry_run(flags.dry_run);
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  v1::CreateTablesReply reply;
  HOTBED_RETURN_IF_ERROR(CreateParts(context, flags, request, counts, &coordinator, &reply));
  std::vector<TableSpec> parts;
  bool created = false;
  int shards = 0;
  for (const v1::CreateTableReply& one : reply.tables()) {
    HOTBED_ASSIGN_OR_RETURN(parts.emplace_back(), FromProto(one.spec()));
    created |= one.created();
    shards += one.shards_size();
  }
  const TableSpec spec = ComposedOf(parts);
  nlohmann::ordered_json json = ComposedJson(parts);
  json["created"] = created;
  json["dry_run"] = flags.dry_run;
  const char* did = flags.dry_run ? "would create composed table '"
                    : created     ? "created composed table '"
                                  : "there already, and equal: composed table '";
  return context.Answer(
      json, absl::StrCat(did, spec.name, "' (", WithCommas(spec.rows), " rows, dim ", spec.dim,
                         ", ", CompositionText(spec), ")\n  row: ", RowFormula(spec),
                         "\n  parameters: ", SavedText(spec, parts), "\n  ", parts.size(),
                         " parts with ", shards, " shards\n"));
}

absl::StatusOr<v1::CreateTablesRequest> ToRequest(const TableCreateFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(flags.file));
  const absl::StatusOr<std::vector<AskedTable>> tables = ReadTableFile(text);
  if (!tables.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--file ", flags.file, ": ", tables.status().message(), "; nothing was created"));
  }
  v1::CreateTablesRequest request;
  for (const AskedTable& table : *tables) {
    HOTBED_RETURN_IF_ERROR(CheckSlices(flags, table.spec));
    if (table.spec.composition.form == ComposeForm::kFrequency) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--file ", flags.file, ": table '", table.spec.name,
          "': compose is frequency, which needs a histogram: create it with 'hotbed table create ",
          table.spec.name, " --histogram FILE'; nothing was created"));
    }
    HOTBED_RETURN_IF_ERROR(AddTables(table.spec, table.shards, &request));
  }
  request.set_if_not_exists(flags.if_not_exists);
  request.set_dry_run(flags.dry_run);
  return request;
}

// Cuts and places the tables of the request as the plan has them.
absl::Status PlaceByPlan(const std::string& file, CoordinatorStub* coordinator,
                         v1::CreateTablesRequest* request) {
  HOTBED_ASSIGN_OR_RETURN(const PlannerOutput plan, LoadPlan(file));
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const ClusterView view, ViewOfMap(map));
  for (v1::NewTable& table : *request->mutable_tables()) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(table.spec()));
    const absl::StatusOr<TableToCreate> planned = CutAsPlanned(view, spec, plan);
    if (!planned.ok()) {
      return absl::Status(
          planned.status().code(),
          absl::StrCat("--plan ", file, ": ", planned.status().message(), "; nothing was created"));
    }
    *table.mutable_spec() = ToProto(planned->spec);
    for (const NewShard& shard : planned->shards) {
      v1::PlacedShard& placed = *table.add_placed();
      placed.set_range_first(shard.range.first);
      placed.set_range_limit(shard.range.limit);
      placed.set_column_first(shard.range.column_first);
      placed.set_column_limit(shard.range.column_limit);
      for (const ServerId server : shard.servers) placed.add_servers(server);
    }
  }
  return absl::OkStatus();
}

absl::Status CreateTogether(const CommandContext& context, const TableCreateFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(v1::CreateTablesRequest request, ToRequest(flags));
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  if (!flags.plan.empty()) {
    HOTBED_RETURN_IF_ERROR(PlaceByPlan(flags.plan, &coordinator, &request));
  }
  std::vector<TableSpec> tables;
  for (const v1::NewTable& one : request.tables()) {
    HOTBED_ASSIGN_OR_RETURN(tables.emplace_back(), FromProto(one.spec()));
  }
  HOTBED_RETURN_IF_ERROR(WarnWhereTooLarge(context, &coordinator, tables));
  HOTBED_ASSIGN_OR_RETURN(const v1::CreateTablesReply reply, coordinator.CreateTables(request));
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TablePrinter printer({"table", "kind", "dim", "shards", "servers", "bytes when full", ""});
  int created = 0;
  for (const v1::CreateTableReply& one : reply.tables()) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(one.spec()));
    json.push_back(CreatedJson(one, spec, flags.dry_run));
    created += one.created() ? 1 : 0;
    const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
    printer.AddRow({spec.name, KindText(spec), absl::StrCat(spec.dim),
                    absl::StrCat(one.shards_size()), absl::StrCat(Servers(one)),
                    spec.rows > 0 ? FormatBytes(spec.rows * row_bytes) : "-",
                    flags.dry_run || one.created() ? "" : "there already"});
  }
  return context.Answer(json, absl::StrCat(flags.dry_run ? "would create, placed together:"
                                                         : absl::StrCat("created ", created,
                                                                        " tables, placed together"),
                                           "\n", printer.ToText()));
}

bool Gives(const TableCreateFlags& flags, absl::string_view name) {
  return std::any_of(flags.given.begin(), flags.given.end(),
                     [name](const auto& one) { return one.first->name == name; });
}

// Creates the one table of the flags. An invalid table is a usage error, found before any call.
void BuildSpec(TableCreateFlags* flags) {
  if (flags->name.empty()) throw CLI::RequiredError("NAME (or --file)");
  const bool vocabulary = Gives(*flags, "vocabulary");  // which has its own dim and rows
  if (!Gives(*flags, "dim") && !vocabulary) throw CLI::RequiredError("--dim");
  const bool counted = !flags->histogram.empty();
  if (counted && Gives(*flags, "rows")) throw CLI::ExcludesError("--histogram", "--rows");
  if (!counted && !Gives(*flags, "rows") && !Gives(*flags, "hashed") && !vocabulary) {
    throw CLI::RequiredError("--rows N (a bounded table) or --hashed");
  }
  flags->spec = DefaultTableSpec();
  flags->spec.name = flags->name;
  absl::Status status;
  for (const auto& [option, text] : flags->given) {
    status.Update(SetTableOption(*option, text, &flags->spec));
  }
  if (counted) {
    flags->spec.rows = kFrequencyRowsMax;  // until the file is read
    if (flags->spec.composition != Composition()) {
      status.Update(absl::InvalidArgumentError(
          "--histogram makes frequency blocks; leave out --compose and its options"));
    }
  } else if (flags->spec.composition.form == ComposeForm::kFrequency) {
    throw CLI::RequiredError("--compose frequency: --histogram FILE (hotbed table histogram)");
  }
  status.Update(NamingItsFlag(ValidateTableSpec(flags->spec)));
  if (IsComposed(flags->spec)) status.Update(PartsOf(flags->spec).status());
  status.Update(CheckSlices(*flags, flags->spec));
  if (!status.ok()) throw CLI::ParseError(std::string(status.message()), kExitUsage);
}

}  // namespace

void AddTableCreateCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<TableCreateFlags>();
  CLI::App* app = table->add_subcommand("create", "Create a table and place its shards");
  app->footer(
      "Every option with its formula and range: docs/tables.md. Only the learning rate, its "
      "schedule, --clip-value,\n--clip-row-norm, the shares of memory and the policies of rows may "
      "change later: 'hotbed table alter'.\n\nExamples:\n"
      "  hotbed table create user --dim 64 --rows 1000000 --optimizer adam\n"
      "  hotbed table create item --dim 32 --hashed --touches --shows --rows-max 1000000 "
      "--evict-by "
      "score\n"
      "  hotbed table create words --vocabulary 1000000      # numbers for keys");
  app->add_option("NAME", flags->name, "Name of the table");
  AddTableFlags(app, /*only_changing=*/false, &flags->given);
  CLI::Option* shards = app->add_option("--shards", flags->shards, "At least this many; 0: by size")
                            ->check(CLI::Range(uint32_t{0}, kShardsMax))
                            ->group("Command");
  CLI::Option* file =
      app->add_option(
             "--file", flags->file,
             "Tables to create together, all or none: a JSON list of objects with the names "
             "of these flags, or the output of 'table describe -o json' (- is stdin)")
          ->group("Command");
  app->add_option("--plan", flags->plan,
                  "With --file: cut and place the tables as this plan has them (plan compute -o "
                  "json, any strategy)")
      ->needs(file)
      ->group("Command");
  CLI::Option* histogram =
      app->add_option("--histogram", flags->histogram,
                      "Frequency blocks: an .npy file of the counts of ids 0..rows-1 (table "
                      "histogram)")
          ->excludes(file)
          ->group("Composed tables");
  app->add_option("--blocks", flags->blocks, "With --histogram: blocks of equal numbers of ids")
      ->check(CLI::Range(uint32_t{1}, kBlocksMax))
      ->needs(histogram)
      ->capture_default_str()
      ->group("Composed tables");
  app->add_flag("--even-slices", flags->even_slices,
                "Refuse a table whose dim --column-slices does not divide")
      ->group("Command");
  app->add_flag("--if-not-exists", flags->if_not_exists, "Succeed if an equal table exists")
      ->group("Command");
  app->add_flag("--dry-run", flags->dry_run, "Print what would be done; do nothing")
      ->group("Command");
  app->callback([context, flags, file, shards] {
    if (file->count() > 0) {
      if (!flags->name.empty()) throw CLI::ExcludesError("--file", "NAME");
      if (shards->count() > 0) throw CLI::ExcludesError("--file", "--shards");
      if (!flags->given.empty()) {
        throw CLI::ExcludesError("--file", absl::StrCat("--", flags->given.front().first->name));
      }
      context->run = [context, flags] { return CreateTogether(*context, *flags); };
      return;
    }
    BuildSpec(flags.get());
    if (IsComposed(flags->spec) || !flags->histogram.empty()) {
      if (shards->count() > 0) throw CLI::ExcludesError("--compose", "--shards");
      context->run = [context, flags] { return CreateComposed(*context, *flags); };
      return;
    }
    context->run = [context, flags] { return Create(*context, *flags); };
  });
}

}  // namespace hotbed
