#include "examples/words/text_source.h"

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/cluster/child_process.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kAllVerses[] = "gen1:1-rev22:21";
constexpr absl::Duration kReadMax = absl::Seconds(60);

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& program,
                                     const std::string& scratch_dir) {
  if (!path.empty()) return FileSystem::Real()->ReadAll(path);
  if (!FileSystem::Real()->Exists(program)) {
    return absl::NotFoundError(
        absl::StrCat(program,
                     " is missing: install the Debian packages bible-kjv and "
                     "bible-kjv-text (./dev example words does), or give --text=FILE"));
  }
  const std::string text_path = absl::StrCat(scratch_dir, "/text"),
                    log_path = absl::StrCat(scratch_dir, "/text.log");
  std::error_code none;
  std::filesystem::remove(text_path, none);  // a child's output is appended
  // -f turns formatting off: one verse per line, after its number.
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child,
                          ChildProcess::Spawn({program, "-f", kAllVerses}, log_path, text_path));
  if (!child->WaitFor(kReadMax)) {
    return absl::DeadlineExceededError(
        absl::StrCat(program, " is not done after ", absl::FormatDuration(kReadMax)));
  }
  if (child->exit_code() != 0) {
    return absl::UnavailableError(absl::StrCat(program, " -f ", kAllVerses,
                                               " ended: ", child->exit_text(),
                                               ". It said: ", LastLines(log_path, 3)));
  }
  return FileSystem::Real()->ReadAll(text_path);
}

}  // namespace hotbed
