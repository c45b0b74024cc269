// The memory of copies of shards, into files and from them, beside the tiers. A copy takes what it
// may need before it begins, or waits for its turn. One that needs more than the limit waits until
// no other is left, so that every copy ends. Thread-safe.
#ifndef HOTBED_SERVER_HOST_COPY_MEMORY_H_
#define HOTBED_SERVER_HOST_COPY_MEMORY_H_

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/status_numbers.h"

namespace hotbed {

class CopyMemory {
 public:
  explicit CopyMemory(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Gives its bytes back when it is destroyed.
  using Share = std::shared_ptr<const void>;
  // Blocks, in the order of calls. `wanted` is asked ten times a second; its error ends the wait.
  absl::StatusOr<Share> Take(uint64_t bytes, absl::FunctionRef<absl::Status()> wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return bytes_;
  }
  void AddNumbers(StatusNumbers* numbers) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool HasRoom(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return bytes_ == 0 || (bytes_ <= bytes_max_ && bytes <= bytes_max_ - bytes_);
  }

  const uint64_t bytes_max_;
  mutable absl::Mutex mu_;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);  // numbers of calls
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_COPY_MEMORY_H_
