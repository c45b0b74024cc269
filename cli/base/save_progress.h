// Saving a checkpoint by a command: with a progress bar, until Ctrl-C.
#ifndef HOTBED_CLI_BASE_SAVE_PROGRESS_H_
#define HOTBED_CLI_BASE_SAVE_PROGRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/fold.h"
#include "cli/base/command.h"
#include "hotbed/checkpoint.h"

namespace CLI {
class App;
}

namespace hotbed {

// The flags that saving commands have in common, as they were typed.
struct SaveFlags {
  std::string rate;
  std::string at_step;
  std::string group;
  std::string compress;
};

void AddSaveFlags(CLI::App* command, SaveFlags* flags);
// InvalidArgument names the flag, its value and what is allowed.
absl::Status ParseSaveFlags(const SaveFlags& flags, SaveOptions* options);

// Sets progress and stop of the options, and saves.
absl::StatusOr<SavedCheckpoint> SaveWithProgress(const CommandContext& context,
                                                 SaveOptions options);

// Sets progress and stop of the options, and folds (checkpoint/fold.h).
absl::StatusOr<Folded> FoldWithProgress(const CommandContext& context, const std::string& folder,
                                        FoldOptions options, Place* place);

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_SAVE_PROGRESS_H_
