// Keeps writers that were given up from writing to files that others go on with.
//
// A writer holds a shared lock on a file, the fence, during each of its writes, and only writes as
// long as the file has its name. The process that takes over deletes the file under an exclusive
// lock. So no write of a former writer is in progress then, and none begins later. Locks are
// flock's: they end with the process. Thread-compatible; calls block.
#ifndef HOTBED_CHECKPOINT_WRITE_FENCE_H_
#define HOTBED_CHECKPOINT_WRITE_FENCE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

class WriteFence {
 public:
  static absl::Status Make(const std::string& path);
  // Deletes it. OK if there is none. Unavailable: a writer has been in the middle of a write for so
  // long.
  static absl::Status Close(const std::string& path, absl::Duration patience);

  // For a writer. NotFound: it was closed.
  static absl::StatusOr<std::unique_ptr<WriteFence>> Open(const std::string& path);
  ~WriteFence();
  WriteFence(const WriteFence&) = delete;
  // Cancelled: it was closed, and `write` was not called.
  absl::Status Run(absl::FunctionRef<absl::Status()> write);

 private:
  WriteFence(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_WRITE_FENCE_H_
