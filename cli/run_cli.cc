#include "cli/run_cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/base/command.h"
#include "cli/base/row_id.h"
#include "cli/cluster/http_get.h"
#include "common/host_port.h"
#include "config/config.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

constexpr char kFooter[] =
    "\nExit codes: 0 done, 1 the command did not succeed (the reason is on stderr), 2 the command "
    "line is wrong and\n"
    "nothing was done.\n"
    "Environment: HOTBED_COORDINATOR stands for --coordinator; HOTBED_TLS_CA, HOTBED_TLS_CERT, "
    "HOTBED_TLS_KEY and\n"
    "HOTBED_TOKEN_FILE for the flags of these names.\n";

CLI::App* AddGroup(CLI::App* root, const char* name, const char* help) {
  return root->add_subcommand(name, help);
}

void AddCommands(CLI::App* root, CommandContext* context) {
  AddUpCommand(root, context);
  AddStatusCommand(root, context);
  CLI::App* table = AddGroup(root, "table", "Create, list, describe, alter and drop tables");
  AddTableCreateCommand(table, context);
  AddTableListCommand(table, context);
  AddTableDescribeCommand(table, context);
  AddTableMemoryCommand(table, context);
  AddTableAlterCommand(table, context);
  AddTableDropCommand(table, context);
  AddTableExpireCommand(table, context);
  AddTableExportCommand(table, context);
  AddTableImportCommand(table, context);
  AddTableHistogramCommand(table, context);
  AddTableScanCommand(table, context);
  AddTableFollowCommand(table, context);
  CLI::App* row = AddGroup(root, "row", "Look at rows and delete them");
  AddRowGetCommand(row, context);
  AddRowDeleteCommand(row, context);
  AddTopKCommand(root, context);
  CLI::App* shard = AddGroup(root, "shard", "List and move shards; empty a server");
  AddShardListCommand(shard, context);
  AddShardMoveCommand(shard, context);
  AddShardMovesCommand(shard, context);
  AddShardDrainCommand(shard, context);
  AddShardChooseCommand(shard, context);
  AddShardSplitCommand(shard, context);
  AddShardMergeCommand(shard, context);
  AddShardControlCommands(shard, context);
  AddServerRetireCommand(AddGroup(root, "server", "Stop a server without harm"), context);
  AddRebalanceCommands(AddGroup(root, "rebalance", "Switch rebalancing on and off"), context);
  CLI::App* checkpoint =
      AddGroup(root, "checkpoint", "Save tables into files, and begin tables with saved rows");
  AddCheckpointSaveCommand(checkpoint, context);
  AddCheckpointRestoreCommand(checkpoint, context);
  AddCheckpointScheduleCommand(checkpoint, context);
  AddCheckpointFetchCommand(checkpoint, context);
  AddCheckpointFileCommands(checkpoint, context);
  CLI::App* metadata =
      AddGroup(root, "metadata",
               "Back up the coordinator's metadata, rebuild lost ones, move them to another store");
  AddMetadataCommands(metadata, context);
  AddMetadataMoveCommands(metadata, context);
  CLI::App* serve =
      AddGroup(root, "serve", "Read copies of tables for inference, and which version is current");
  AddServeCommands(serve, context);
  AddServeVersionCommands(serve, context);
  AddPublishCommand(root, context);
  AddEventsCommand(root, context);
  CLI::App* plan = AddGroup(root, "plan", "Compute, look at and compare placements");
  AddPlanComputeCommand(plan, context);
  AddPlanShowCommand(plan, context);
  AddPlanDiffCommand(plan, context);
  AddPlanApplyCommand(plan, context);
  AddPlanCalibrateCommand(plan, context);
  AddBenchCommands(AddGroup(root, "bench", "Load generator"), context);
  AddDatagenCriteoCommand(AddGroup(root, "datagen", "Make training data with a known best AUC"),
                          context);
  AddDoctorCommand(root, context);
  AddHealthCommand(root, context);
  AddSalvageCommand(root, context);
  AddCertCommands(AddGroup(root, "cert", "Make and show certificates and tokens"), context);
  AddDemoCommand(root, context);
  AddConfigPrintCommand(AddGroup(root, "config", "Settings of the daemons"), context);
  AddCompletionCommand(root, context);
  AddVersionCommand(root, context);
}

// The deepest command that the words name.
CLI::App* Deepest(CLI::App* app) {
  while (true) {
    const std::vector<CLI::App*> chosen = app->get_subcommands();
    if (chosen.empty()) return app;
    app = chosen.front();
  }
}

std::string FullName(const CLI::App* app) {
  return app->get_parent() == nullptr
             ? app->get_name()
             : absl::StrCat(FullName(app->get_parent()), " ", app->get_name());
}

std::vector<std::string> KnownFlags(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames())
        names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

// The error for words that no command understands.
std::string UnknownWord(CLI::App* root) {
  CLI::App* at = Deepest(root);
  const std::vector<std::string> words = root->remaining(true);
  const std::string word = words.empty() ? "" : words.front();
  std::vector<std::string> known;
  std::string what = "command";
  if (absl::StartsWith(word, "-")) {
    known = KnownFlags(at);
    what = "flag";
  } else {
    for (const CLI::App* sub : at->get_subcommands({})) known.push_back(sub->get_name());
    if (known.empty()) what = "argument";
  }
  const std::string flag = word.substr(0, word.find('='));
  const std::string nearest = NearestWord(flag, known);
  return absl::StrCat("unknown ", what, " '", word, "' after '", FullName(at), "'",
                      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                      " (see '", FullName(at), " --help')");
}

void PrintError(const CommandContext& context, absl::string_view code, const std::string& message) {
  if (context.json()) {
    nlohmann::json error = {{"error", {{"code", code}, {"message", message}}}};
    *context.err << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    *context.err << "hotbed: " << message << "\n";
  }
}

// In `row get TABLE -5` or `row delete TABLE --id -5`, -5 is an id and not a flag: negative ids are
// passed on as the unsigned number with the same bits.
std::vector<std::string> WithoutNegativeIds(std::vector<std::string> args) {
  const auto row = std::find(args.begin(), args.end(), "row");
  if (row == args.end() || row + 1 == args.end() ||
      (*(row + 1) != "get" && *(row + 1) != "delete")) {
    return args;
  }
  for (auto arg = row + 2; arg != args.end(); ++arg) {
    if (arg->size() < 2 || (*arg)[0] != '-' || !absl::ascii_isdigit((*arg)[1])) continue;
    const absl::StatusOr<uint64_t> id = ParseId(*arg);
    if (id.ok()) *arg = absl::StrCat(*id);
  }
  return args;
}

int ParseAndChoose(CLI::App* root, CommandContext* context, std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());  // CLI11 expects them in reverse order
  try {
    root->parse(std::move(args));
  } catch (const CLI::Success& help) {
    root->exit(help, *context->out, *context->err);
    return kExitOk;
  } catch (const CLI::ExtrasError&) {
    PrintError(*context, "USAGE", UnknownWord(root));
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    // Extra words are a likelier cause than missing arguments: a mistyped flag also shows as a
    // missing one.
    const bool extras =
        !root->remaining(true).empty() && dynamic_cast<const CLI::RequiredError*>(&error);
    PrintError(*context, "USAGE",
               extras
                   ? UnknownWord(root)
                   : absl::StrCat(error.what(), " (see '", FullName(Deepest(root)), " --help')"));
    return kExitUsage;
  }
  if (!context->run) {
    const CLI::App* const group = Deepest(root)->get_parent();
    *context->err << Deepest(root)->help(group == nullptr ? "" : FullName(group));
    return kExitUsage;
  }
  return kExitOk;
}

constexpr char kCertificateName[] = "HOTBED_TLS_CERT";
constexpr char kKeyName[] = "HOTBED_TLS_KEY";
constexpr char kAuthorityName[] = "HOTBED_TLS_CA";
constexpr char kTokenName[] = "HOTBED_TOKEN_FILE";

void AddIdentityOptions(CLI::App* root, CommandContext* context) {
  ClientIdentity* const identity = &context->identity;
  root->add_option("--tls-ca", identity->files.authority,
                   "TLS: certificates in PEM that sign those of the cluster's servers")
      ->envname(kAuthorityName);
  root->add_option("--tls-cert", identity->files.certificate, "This caller's certificate in PEM")
      ->envname(kCertificateName);
  root->add_option("--tls-key", identity->files.key, "Its private key in PEM")->envname(kKeyName);
  root->add_option("--token-file", identity->token_file,
                   "File with a bearer token, in place of a certificate")
      ->envname(kTokenName);
  root->add_option("--admin-token-file", context->admin_token_file,
                   "File with a token for the pages of admin ports that ask for one")
      ->envname(kAdminTokenName);
}

// From there every part that connects has it, and the processes that a command starts.
void PutIntoEnvironment(const CommandContext& context) {
  const ClientIdentity& identity = context.identity;
  const std::pair<const char*, const std::string&> values[] = {
      {kCertificateName, identity.files.certificate},
      {kKeyName, identity.files.key},
      {kAuthorityName, identity.files.authority},
      {kTokenName, identity.token_file},
      {kAdminTokenName, context.admin_token_file}};
  for (const auto& [name, value] : values) {
    if (!value.empty()) setenv(name, value.c_str(), 1);
  }
}

}  // namespace

absl::Duration CommandContext::timeout_duration() const {
  const absl::StatusOr<int64_t> ms = ParseMillis(timeout);
  return absl::Milliseconds(ms.ok() ? *ms : 10000);
}

void CommandContext::Runs(CLI::App* command, std::function<absl::Status()> work) {
  command->callback([this, work = std::move(work)] { run = work; });
}

absl::Status CommandContext::Answer(const nlohmann::ordered_json& json,
                                    absl::string_view text) const {
  *out << (this->json() ? json.dump(2) + "\n" : text);
  return absl::OkStatus();
}

int RunCli(const std::vector<std::string>& args, std::ostream* out, std::ostream* err) {
  CommandContext context;
  context.out = out;
  context.err = err;
  context.command_line = absl::StrCat("hotbed ", absl::StrJoin(args, " "));
  CLI::App root("Hotbed keeps the rows of huge embedding tables on a cluster of shard servers.",
                "hotbed");
  root.fallthrough();  // global flags may stand after the command
  root.footer(kFooter);
  root.add_option("--coordinator", context.coordinator,
                  "Address of the cluster's coordinator, host:port; several with commas between")
      ->check([](const std::string& text) {
        return std::string(CheckHostPorts(absl::StripPrefix(text, "hotbed://"), 1).message());
      })
      ->envname("HOTBED_COORDINATOR")
      ->capture_default_str();
  root.add_option("-o,--output", context.output, "Form of the output: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  root.add_option("--timeout", context.timeout, "Longest wait for the cluster's answer")
      ->check([](const std::string& text) {
        const absl::StatusOr<int64_t> ms = ParseMillis(text);
        if (!ms.ok()) return std::string(ms.status().message());
        return *ms > 0 ? std::string() : absl::StrCat("--timeout ", text, " must be above 0");
      })
      ->capture_default_str();
  AddIdentityOptions(&root, &context);
  AddCommands(&root, &context);
  const int parsed = ParseAndChoose(&root, &context, WithoutNegativeIds(args));
  if (parsed != kExitOk || !context.run) return parsed;
  // The client library's form of the address is accepted too.
  context.coordinator = std::string(absl::StripPrefix(context.coordinator, "hotbed://"));
  absl::Status status = CheckIdentity(context.identity);
  if (status.ok()) {
    PutIntoEnvironment(context);
    status = context.run();
  }
  out->flush();
  if (status.ok()) return context.exit_code;
  PrintError(context, absl::StatusCodeToString(status.code()), std::string(status.message()));
  return kExitFailed;
}

}  // namespace hotbed
