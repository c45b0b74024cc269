#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/command.h"
#include "cli/coordinator_stub.h"
#include "cli/plan_file.h"
#include "cli/table_file.h"
#include "cli/table_printer.h"
#include "cli/table_text.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

struct Flags {
  TableSpec spec;
  std::string file;  // empty: the one table of the other flags
  std::string optimizer = "rowwise-adagrad";
  std::string initializer = "zero";
  std::string weight_type = "fp32";
  std::string durability = "log";
  std::string nan_policy = "reject";
  uint32_t shards = 0;
  bool if_not_exists = false;
  bool dry_run = false;
};

template <typename Enum>
Enum FromWord(const std::vector<std::string>& words, const std::string& word) {
  return static_cast<Enum>(std::find(words.begin(), words.end(), word) - words.begin());
}

v1::CreateTableRequest ToRequest(const Flags& flags, const InitializerParams& initializer) {
  TableSpec spec = flags.spec;
  spec.optimizer.kind = FromWord<OptimizerKind>(kOptimizerWords, flags.optimizer);
  spec.initializer = initializer;
  spec.weight_type = FromWord<WeightType>(kWeightTypeWords, flags.weight_type);
  spec.durability = FromWord<Durability>(kDurabilityWords, flags.durability);
  spec.nan_policy = FromWord<NanPolicy>(kNanPolicyWords, flags.nan_policy);
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.set_if_not_exists(flags.if_not_exists);
  request.set_dry_run(flags.dry_run);
  request.set_shards(flags.shards);
  return request;
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

absl::Status Create(const CommandContext& context, const Flags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const InitializerParams initializer, ParseInitializer(flags.initializer));
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::CreateTableReply reply,
                          coordinator.CreateTable(ToRequest(flags, initializer)));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(reply.spec()));
  if (context.json()) {
    *context.out << CreatedJson(reply, spec, flags.dry_run).dump(2) << "\n";
    return absl::OkStatus();
  }
  const char* did = flags.dry_run     ? "would create table '"
                    : reply.created() ? "created table '"
                                      : "there already, and equal: table '";
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  *context.out << did << spec.name << "' (" << KindText(spec) << ", dim " << spec.dim << ", "
               << OptimizerText(spec.optimizer) << ", init " << InitializerText(spec.initializer)
               << ")\n"
               << "  " << reply.shards_size() << " shards on " << Servers(reply) << " servers";
  if (spec.rows > 0) *context.out << ", " << FormatBytes(spec.rows * row_bytes) << " when full";
  *context.out << "\n";
  return absl::OkStatus();
}

absl::StatusOr<v1::CreateTablesRequest> ToRequest(const Flags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(flags.file));
  const absl::StatusOr<std::vector<AskedTable>> tables = ReadTableFile(text);
  if (!tables.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--file ", flags.file, ": ", tables.status().message(), "; nothing was created"));
  }
  v1::CreateTablesRequest request;
  for (const AskedTable& table : *tables) {
    v1::NewTable& one = *request.add_tables();
    *one.mutable_spec() = ToProto(table.spec);
    one.set_shards(table.shards);
  }
  request.set_if_not_exists(flags.if_not_exists);
  request.set_dry_run(flags.dry_run);
  return request;
}

absl::Status CreateTogether(const CommandContext& context, const Flags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const v1::CreateTablesRequest request, ToRequest(flags));
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
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
  if (context.json()) {
    *context.out << json.dump(2) << "\n";
  } else if (flags.dry_run) {
    *context.out << "would create, placed together:\n" << printer.ToText();
  } else {
    *context.out << "created " << created << " tables, placed together\n" << printer.ToText();
  }
  return absl::OkStatus();
}

// Accepts rowwise_adagrad and truncated_normal too.
std::string Dashed(std::string word) { return absl::StrReplaceAll(word, {{"_", "-"}}); }

}  // namespace

void AddTableCreateCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = table->add_subcommand("create", "Create a table and place its shards");
  OptimizerParams& o = flags->spec.optimizer;
  CLI::Option* name = app->add_option("NAME", flags->spec.name, "Name of the table");
  CLI::Option* dim = app->add_option("--dim", flags->spec.dim, "Elements of a row")
                         ->check(CLI::Range(1u, kDimMax));
  CLI::Option* rows = app->add_option(
      "--rows", flags->spec.rows,
      "Bounded: ids are 0..rows-1. With --hashed: the number expected, for placement");
  CLI::Option* hashed =
      app->add_flag("--hashed", flags->spec.hashed, "Any 64-bit id; rows come to exist by a push");
  app->add_option("--optimizer", flags->optimizer, "What a push does to a row")
      ->transform(Dashed)
      ->check(CLI::IsMember(kOptimizerWords))
      ->capture_default_str();
  app->add_option("--lr,--learning-rate", o.learning_rate, "Where the push carries none")
      ->capture_default_str();
  app->add_option("--eps,--epsilon", o.epsilon, "Adagrad and Adam")->capture_default_str();
  app->add_option("--beta1", o.beta1, "Adam")->capture_default_str();
  app->add_option("--beta2", o.beta2, "Adam")->capture_default_str();
  app->add_option("--weight-decay", o.weight_decay, "L2, added to the gradient")
      ->capture_default_str();
  app->add_option("--initial-accumulator", o.initial_accumulator, "Adagrad kinds")
      ->capture_default_str();
  app->add_option("--init", flags->initializer,
                  "First values: zero, constant:V, uniform:LOW,HIGH, normal:MEAN,DEV, "
                  "truncated-normal:MEAN,DEV")
      ->transform(Dashed)
      ->check([](const std::string& text) {
        return std::string(ParseInitializer(text).status().message());
      })
      ->capture_default_str();
  app->add_option("--weight-type", flags->weight_type, "How weights are stored")
      ->check(CLI::IsMember(kWeightTypeWords))
      ->capture_default_str();
  app->add_option("--durability", flags->durability, "What an acknowledged push survives")
      ->check(CLI::IsMember(kDurabilityWords))
      ->capture_default_str();
  app->add_option("--nan", flags->nan_policy, "What happens to NaN and infinite gradients")
      ->check(CLI::IsMember(kNanPolicyWords))
      ->capture_default_str();
  app->add_option("--seed", flags->spec.seed, "Of the first values; 0: from the name");
  app->add_option("--shards", flags->shards, "At least this many; 0: by size");
  CLI::Option* file = app->add_option(
      "--file", flags->file,
      "Tables to create together, all or none: a JSON list of objects in the names of these flags "
      "(- is stdin)");
  for (CLI::Option* option : app->get_options()) {
    if (option != file && option != app->get_help_ptr()) file->excludes(option);
  }
  app->add_flag("--if-not-exists", flags->if_not_exists, "An equal table is a success");
  app->add_flag("--dry-run", flags->dry_run, "Say what would be done; do nothing");
  app->callback([context, flags, name, dim, file, rows, hashed] {
    if (file->count() > 0) {
      context->run = [context, flags] { return CreateTogether(*context, *flags); };
      return;
    }
    if (name->count() == 0) throw CLI::RequiredError("NAME (or --file)");
    if (dim->count() == 0) throw CLI::RequiredError("--dim");
    if (rows->count() == 0 && hashed->count() == 0) {
      throw CLI::RequiredError("--rows N (a bounded table) or --hashed");
    }
    context->run = [context, flags] { return Create(*context, *flags); };
  });
}

}  // namespace hotbed
