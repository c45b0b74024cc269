// Shared by all commands. A command is one file with one Add function, which adds its CLI11
// subcommand to a parent and names its work with CommandContext::Runs. Parsing never does work, and
// work never parses.
#ifndef HOTBED_CLI_BASE_COMMAND_H_
#define HOTBED_CLI_BASE_COMMAND_H_

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "security/identity.h"

namespace CLI {
class App;
}

namespace hotbed {

// Exit codes, documented in --help.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the command was understood and did not succeed
constexpr int kExitUsage = 2;   // the command line is wrong; nothing was done

struct CommandContext {
  // Global flags.
  std::string coordinator = "127.0.0.1:7400";
  std::string output = "table";  // table | json
  std::string timeout = "10s";   // for one request to the cluster
  ClientIdentity identity;       // towards the cluster; also in the environment
  std::string admin_token_file;  // for admin ports; also in the environment
  bool json() const { return output == "json"; }
  absl::Duration timeout_duration() const;

  // Prints the answer of a command: `json` with -o json, otherwise `text`.
  absl::Status Answer(const nlohmann::ordered_json& json, absl::string_view text) const;

  // `work` runs after parsing if `command` was chosen.
  void Runs(CLI::App* command, std::function<absl::Status()> work);

  std::string command_line;  // as it was typed, for reports
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  std::function<absl::Status()> run;  // set by the chosen command
  int exit_code = 0;  // after an OK run, for commands that report failures themselves
};

// Each command takes its own flags and the global ones.
void AddVersionCommand(CLI::App* root, CommandContext* context);
void AddStatusCommand(CLI::App* root, CommandContext* context);
void AddCertCommands(CLI::App* cert,
                     CommandContext* context);  // create-ca, create, show, hash-token
void AddCompletionCommand(CLI::App* root, CommandContext* context);
void AddConfigPrintCommand(CLI::App* config, CommandContext* context);
void AddHealthCommand(CLI::App* root, CommandContext* context);
void AddServerRetireCommand(CLI::App* server, CommandContext* context);
void AddSalvageCommand(CLI::App* root, CommandContext* context);
void AddUpCommand(CLI::App* root, CommandContext* context);
void AddDemoCommand(CLI::App* root, CommandContext* context);
void AddDoctorCommand(CLI::App* root, CommandContext* context);
void AddTableCreateCommand(CLI::App* table, CommandContext* context);
void AddTableAlterCommand(CLI::App* table, CommandContext* context);
void AddTableListCommand(CLI::App* table, CommandContext* context);
void AddTableMemoryCommand(CLI::App* table, CommandContext* context);
void AddTableDescribeCommand(CLI::App* table, CommandContext* context);
void AddTableDropCommand(CLI::App* table, CommandContext* context);
void AddTableExpireCommand(CLI::App* table, CommandContext* context);
void AddTableExportCommand(CLI::App* table, CommandContext* context);
void AddTableFollowCommand(CLI::App* table, CommandContext* context);
void AddTableHistogramCommand(CLI::App* table, CommandContext* context);
void AddTableImportCommand(CLI::App* table, CommandContext* context);
void AddTableScanCommand(CLI::App* table, CommandContext* context);
void AddTopKCommand(CLI::App* root, CommandContext* context);
void AddRowDeleteCommand(CLI::App* row, CommandContext* context);
void AddRowGetCommand(CLI::App* row, CommandContext* context);
void AddShardListCommand(CLI::App* shard, CommandContext* context);
void AddShardMoveCommand(CLI::App* shard, CommandContext* context);
void AddShardMovesCommand(CLI::App* shard, CommandContext* context);
void AddShardDrainCommand(CLI::App* shard, CommandContext* context);
void AddShardChooseCommand(CLI::App* shard, CommandContext* context);
void AddShardMergeCommand(CLI::App* shard, CommandContext* context);
void AddShardSplitCommand(CLI::App* shard, CommandContext* context);
// pause, resume, abort, limit.
void AddShardControlCommands(CLI::App* shard, CommandContext* context);
void AddRebalanceCommands(CLI::App* rebalance, CommandContext* context);    // on, off, status
void AddMetadataCommands(CLI::App* metadata, CommandContext* context);      // backup, rebuild
void AddMetadataMoveCommands(CLI::App* metadata, CommandContext* context);  // export, import
void AddCheckpointSaveCommand(CLI::App* checkpoint, CommandContext* context);
void AddCheckpointRestoreCommand(CLI::App* checkpoint, CommandContext* context);
void AddCheckpointScheduleCommand(CLI::App* checkpoint, CommandContext* context);  // show, stop
void AddCheckpointFetchCommand(CLI::App* checkpoint, CommandContext* context);
// list, show, verify, fold, delete, prune: of files alone; without a cluster, but for server:NAME.
void AddCheckpointFileCommands(CLI::App* checkpoint, CommandContext* context);
void AddServeCommands(CLI::App* serve, CommandContext* context);         // add, remove, status
void AddServeVersionCommands(CLI::App* serve, CommandContext* context);  // pin, rollback, unpublish
void AddPublishCommand(CLI::App* root, CommandContext* context);
void AddEventsCommand(CLI::App* root, CommandContext* context);
void AddPlanCalibrateCommand(CLI::App* plan, CommandContext* context);
void AddPlanComputeCommand(CLI::App* plan, CommandContext* context);
void AddPlanDiffCommand(CLI::App* plan, CommandContext* context);
void AddPlanApplyCommand(CLI::App* plan, CommandContext* context);
void AddPlanShowCommand(CLI::App* plan, CommandContext* context);
void AddDatagenCriteoCommand(CLI::App* datagen, CommandContext* context);
void AddBenchCommands(CLI::App* bench, CommandContext* context);

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_COMMAND_H_
