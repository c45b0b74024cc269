#ifndef HOTBED_TESTS_TIERS_MANUAL_IO_QUEUE_H_
#define HOTBED_TESTS_TIERS_MANUAL_IO_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "server/tiers/spill/io_queue.h"

namespace hotbed {

// Runs tasks when a test says so, on the test's thread.
class ManualIoQueue : public IoQueue {
 public:
  void Submit(Task task) override { tasks_.push_back(std::move(task)); }
  size_t depth() const { return tasks_.size(); }  // tasks that wait
  // Runs the task at `index` of those waiting; others keep their order.
  void RunAt(size_t index) {
    Task task = std::move(tasks_[index]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    task();
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_MANUAL_IO_QUEUE_H_
