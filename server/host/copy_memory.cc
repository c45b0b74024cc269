#include "server/host/copy_memory.h"

#include "absl/time/time.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kAsk = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<CopyMemory::Share> CopyMemory::Take(uint64_t bytes,
                                                   absl::FunctionRef<absl::Status()> wanted) {
  uint64_t call = 0;
  {
    absl::MutexLock lock(&mu_);
    call = calls_++;
    waiting_.insert(call);
  }
  for (;;) {
    const absl::Status still = wanted();
    absl::MutexLock lock(&mu_);
    const auto may = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return *waiting_.begin() == call && HasRoom(bytes);
    };
    if (!still.ok()) {
      waiting_.erase(call);
      return still;
    }
    if (!AwaitFor(&mu_, absl::Condition(&may), kAsk)) continue;
    waiting_.erase(call);
    bytes_ += bytes;
    return Share(nullptr, [this, bytes](const void*) {
      absl::MutexLock given(&mu_);
      bytes_ -= bytes;
    });
  }
}

void CopyMemory::AddNumbers(StatusNumbers* numbers) const {
  numbers->Add("copy_bytes", "hotbed_server_copy_bytes",
               "Memory that saves, restores, exports and imports may take now.", bytes());
  numbers->Add("copy_bytes_limit", "hotbed_server_copy_limit_bytes",
               "Limit of hotbed_server_copy_bytes: two thirds of --export-bytes-max. One copy may "
               "exceed it alone.",
               bytes_max_);
}

}  // namespace hotbed
