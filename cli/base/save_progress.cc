#include "cli/base/save_progress.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "terminal/progress.h"

namespace hotbed {

void AddSaveFlags(CLI::App* command, SaveFlags* flags) {
  command->add_option("--rate", flags->rate,
                      "Bytes per second that each server writes at most, as 100MiB");
  command->add_option("--at-step", flags->at_step,
                      "All shards between this step of a group of trainers and the next one, or at "
                      "the next step for which that is possible: next");
  command->add_option("--group", flags->group,
                      "Group of trainers whose step it is; the only one at work if not given");
  command->add_option("--compress", flags->compress, "Compress blocks of rows: zstd")
      ->check(CLI::IsMember({"zstd"}));
}

absl::Status ParseSaveFlags(const SaveFlags& flags, SaveOptions* options) {
  options->group = flags.group;
  options->compress = flags.compress;
  if (!flags.at_step.empty()) {
    uint64_t step = 0;
    if (flags.at_step != "next" && (!absl::SimpleAtoi(flags.at_step, &step) || step == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--at-step is \"", flags.at_step, "\"; allowed: a step above 0, or next"));
    }
    options->at_step = step;
  } else if (!flags.group.empty()) {
    return absl::InvalidArgumentError("--group goes with --at-step");
  }
  if (!flags.rate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(options->bytes_per_s, ParseBytes(flags.rate));
  }
  return absl::OkStatus();
}

absl::StatusOr<SavedCheckpoint> SaveWithProgress(const CommandContext& context,
                                                 SaveOptions options) {
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  std::unique_ptr<Progress> bar;
  options.progress = [&](const CheckpointProgress& now) {
    if (context.json()) return;
    constexpr uint64_t kParts = 10'000;  // the bytes in all are an estimate that changes
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "saving", kParts);
    }
    const double part = static_cast<double>(now.bytes_done) / std::max<uint64_t>(now.bytes, 1);
    bar->Update(static_cast<uint64_t>(part * kParts),
                !now.waits_for.empty() ? absl::StrCat("waiting for ", now.waits_for)
                                       : absl::StrCat(now.shards_done, " of ", now.shards,
                                                      " shards, ", FormatBytes(now.bytes_done)));
  };
  HOTBED_ASSIGN_OR_RETURN(SavedCheckpoint saved,
                          SaveCheckpoint(absl::StrCat("hotbed://", context.coordinator), options));
  if (bar != nullptr) bar->Finish();
  return saved;
}

absl::StatusOr<Folded> FoldWithProgress(const CommandContext& context, const std::string& folder,
                                        FoldOptions options, Place* place) {
  const InterruptScope interrupt;
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  std::unique_ptr<Progress> bar;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (context.json()) return;
    if (bar == nullptr) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       "folding", total);
    }
    bar->Update(done);
  };
  HOTBED_ASSIGN_OR_RETURN(Folded folded, FoldCheckpoint(folder, options, place, Clock::Real()));
  if (bar != nullptr) bar->Finish();
  return folded;
}

}  // namespace hotbed
