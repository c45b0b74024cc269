// The steps that one client of the kill checker intended and those known to be applied, on disk.
// The intent of a step is durable before the step is sent, so that after kill -9 the checker knows
// every step that may have been applied. Text lines: `intent N`, `applied N`. Thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_JOURNAL_H_
#define HOTBED_TESTS_CHECKER_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/file_system.h"

namespace hotbed::checker {

class Journal {
 public:
  // Creates the journal, or reads it and cuts a torn last line. DataLoss: a line of another form.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path, FileSystem* files);

  // Steps count from 1 without a gap. Both are durable when they return OK.
  absl::Status Intend(uint64_t step);
  absl::Status Applied(uint64_t step);

  uint64_t last_step() const { return last_step_; }               // intended
  const std::set<uint64_t>& open_steps() const { return open_; }  // intended, without a result

 private:
  absl::Status Write(const char* what, uint64_t step);

  std::unique_ptr<WritableFile> file_;
  uint64_t last_step_ = 0;
  std::set<uint64_t> open_;
};

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_JOURNAL_H_
