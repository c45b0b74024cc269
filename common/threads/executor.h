// Runs the tasks of one shard in order. On the CPU this is the shard's strand
// (common/threads/strand.h).
#ifndef HOTBED_COMMON_THREADS_EXECUTOR_H_
#define HOTBED_COMMON_THREADS_EXECUTOR_H_

#include "absl/functional/any_invocable.h"

namespace hotbed {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` on the executor, perhaps before returning.
  virtual void Run(absl::AnyInvocable<void()> task) = 0;
};

// Runs each task at once, on the caller's thread.
class InlineExecutor : public Executor {
 public:
  void Run(absl::AnyInvocable<void()> task) override { task(); }
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_EXECUTOR_H_
