// Keeps the working memory of calls for later calls. Thread-safe.
#ifndef HOTBED_CLIENT_BATCH_FREE_LIST_H_
#define HOTBED_CLIENT_BATCH_FREE_LIST_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

template <typename Scratch>
class FreeList {
 public:
  explicit FreeList(size_t kept_max) : kept_max_(kept_max) {}

  std::unique_ptr<Scratch> Take() {
    absl::MutexLock lock(&mu_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void GiveBack(std::unique_ptr<Scratch> scratch) {
    absl::MutexLock lock(&mu_);
    if (free_.size() < kept_max_) free_.push_back(std::move(scratch));
  }

 private:
  const size_t kept_max_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Scratch>> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_FREE_LIST_H_
