// Recycles objects, so that a request allocates nothing once the server is warm. Thread-safe.
#ifndef HOTBED_SERVER_NET_OBJECT_POOL_H_
#define HOTBED_SERVER_NET_OBJECT_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

// T is default-constructible. Objects have to be emptied before Give(); at most `idle_max` are
// kept.
template <typename T>
class ObjectPool {
 public:
  explicit ObjectPool(size_t idle_max) : idle_max_(idle_max) {}

  T* Take() {
    {
      absl::MutexLock lock(&mu_);
      if (!idle_.empty()) {
        T* object = idle_.back().release();
        idle_.pop_back();
        return object;
      }
    }
    return new T;
  }

  void Give(T* object) {
    std::unique_ptr<T> owned(object);
    absl::MutexLock lock(&mu_);
    if (idle_.size() < idle_max_) idle_.push_back(std::move(owned));
  }

 private:
  const size_t idle_max_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<T>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_OBJECT_POOL_H_
