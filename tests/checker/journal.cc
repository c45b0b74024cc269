#include "tests/checker/journal.h"

#include <sys/uio.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace hotbed::checker {

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path, FileSystem* files) {
  auto journal = std::make_unique<Journal>();
  HOTBED_ASSIGN_OR_RETURN(journal->file_, files->OpenAppend(path));
  HOTBED_ASSIGN_OR_RETURN(std::string text, files->ReadAll(path));
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) HOTBED_RETURN_IF_ERROR(journal->file_->Truncate(whole));
  text.resize(whole);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint64_t step = 0;
    const absl::string_view whole_line = line;
    if (absl::ConsumePrefix(&line, "intent ") && absl::SimpleAtoi(line, &step) &&
        step == journal->last_step_ + 1) {
      journal->last_step_ = step;
      journal->open_.insert(step);
    } else if (absl::ConsumePrefix(&line, "applied ") && absl::SimpleAtoi(line, &step)) {
      journal->open_.erase(step);
    } else {
      return absl::DataLossError(absl::StrCat(path, ": unexpected line \"", whole_line, "\""));
    }
  }
  return journal;
}

absl::Status Journal::Write(const char* what, uint64_t step) {
  const std::string line = absl::StrCat(what, " ", step, "\n");
  const iovec piece = {const_cast<char*>(line.data()), line.size()};
  return file_->Append({&piece, 1});
}

absl::Status Journal::Intend(uint64_t step) {
  HOTBED_CHECK(step == last_step_ + 1) << "step " << step << " after " << last_step_;
  HOTBED_RETURN_IF_ERROR(Write("intent", step));
  HOTBED_RETURN_IF_ERROR(file_->Sync());
  last_step_ = step;
  open_.insert(step);
  return absl::OkStatus();
}

absl::Status Journal::Applied(uint64_t step) {
  open_.erase(step);
  return Write("applied", step);
}

}  // namespace hotbed::checker
