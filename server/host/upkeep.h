// One thread that runs the chores of a shard host: each at its interval, in the order of the list.
//
// Start and Stop are for one thread; chores run on the upkeep's own thread, one at a time. A chore
// may block for as long as it needs; the others wait.
#ifndef HOTBED_SERVER_HOST_UPKEEP_H_
#define HOTBED_SERVER_HOST_UPKEEP_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace hotbed {

class Upkeep {
 public:
  struct Chore {
    int64_t interval_ns = 0;  // 0: with each pass, ten times per second
    std::function<void(int64_t now_ns)> run;
  };
  Upkeep(std::vector<Chore> chores, const Clock* clock);
  ~Upkeep() { Stop(); }

  void Start();
  // Waits for the chore that runs now.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // One pass: the chores that are due at `now_ns`. For the thread, and for tests without it.
  void RunDue(int64_t now_ns);

 private:
  struct Timed {
    Chore chore;
    int64_t due_ns = 0;
  };
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);

  const Clock* const clock_;
  std::vector<Timed> chores_;  // the thread's
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_UPKEEP_H_
