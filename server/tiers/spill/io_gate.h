// Keeps tasks on the I/O threads from touching a shard that is gone. Thread-safe.
//
// A task inside the gate may itself run the shard's executor and there close the gate: Close does
// not wait for its own thread. After that, such a task may touch nothing but the gate.
#ifndef HOTBED_SERVER_TIERS_SPILL_IO_GATE_H_
#define HOTBED_SERVER_TIERS_SPILL_IO_GATE_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class IoGate {
 public:
  // False once closed; else the shard stays until Leave.
  bool Enter() {
    absl::MutexLock lock(&mu_);
    if (closed_) return false;
    ++inside_;
    entered() = this;
    return true;
  }
  void Leave() {
    absl::MutexLock lock(&mu_);
    --inside_;
    entered() = nullptr;
  }
  // Lets no task in any more and waits until all others have left.
  void Close() {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    others_limit_ = entered() == this ? 1 : 0;
    mu_.Await(absl::Condition(this, &IoGate::OthersLeft));
  }

 private:
  static IoGate*& entered() {
    thread_local IoGate* gate = nullptr;  // the gate that this thread is inside
    return gate;
  }
  bool OthersLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return inside_ <= others_limit_; }

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int inside_ ABSL_GUARDED_BY(mu_) = 0;
  int others_limit_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_IO_GATE_H_
