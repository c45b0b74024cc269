// A fixed number of threads that run submitted tasks, first come, first served. Thread-safe.
#ifndef HOTBED_COMMON_THREADS_THREAD_POOL_H_
#define HOTBED_COMMON_THREADS_THREAD_POOL_H_

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class ThreadPool {
 public:
  // `name` names the threads in a debugger (at most 15 characters).
  ThreadPool(const std::string& name, int threads);
  // Runs the queued tasks, then ends the threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The queue is bounded by its users: a strand has at most one task here.
  void Submit(absl::AnyInvocable<void()> task);

 private:
  void Work();

  absl::Mutex mu_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_THREAD_POOL_H_
