// The messages of pulls in flight that another server may answer, too, the oldest first.
// Thread-safe.
#ifndef HOTBED_CLIENT_PULL_WAITING_READS_H_
#define HOTBED_CLIENT_PULL_WAITING_READS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"

namespace hotbed {

class WaitingRead {
 public:
  virtual ~WaitingRead() = default;
  virtual ServerId server() const = 0;
  virtual int64_t sent_ns() const = 0;
  // Asks other servers for what is still missing; `bounded`: within the budget of hedges. Returns
  // the number of messages: 0 where no other server can answer, or the budget does not suffice.
  virtual int AskOthers(bool bounded) = 0;

 private:
  friend class WaitingReads;
  // Guarded by the mutex of the WaitingReads.
  std::list<std::shared_ptr<WaitingRead>>::iterator place_;
  bool waits_ = false;
  bool asked_twice_ = false;
};

class WaitingReads {
 public:
  void Add(const std::shared_ptr<WaitingRead>& read) {
    absl::MutexLock lock(&mu_);
    read->place_ = reads_.insert(reads_.end(), read);
    read->waits_ = true;
  }
  // Does nothing for a message that was never added.
  void Remove(WaitingRead* read) {
    std::shared_ptr<WaitingRead> keep;  // until the mutex is free
    absl::MutexLock lock(&mu_);
    if (!read->waits_) return;
    read->waits_ = false;
    keep = *read->place_;
    reads_.erase(read->place_);
  }
  void NoteAskedTwice(WaitingRead* read) {
    absl::MutexLock lock(&mu_);
    read->asked_twice_ = true;
  }
  // Those whose parts are in flight at one server only.
  std::vector<std::shared_ptr<WaitingRead>> NotAskedTwice() const {
    absl::MutexLock lock(&mu_);
    std::vector<std::shared_ptr<WaitingRead>> out;
    for (const auto& read : reads_) {
      if (!read->asked_twice_) out.push_back(read);
    }
    return out;
  }
  bool empty() const {
    absl::MutexLock lock(&mu_);
    return reads_.empty();
  }

 private:
  mutable absl::Mutex mu_;
  std::list<std::shared_ptr<WaitingRead>> reads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_WAITING_READS_H_
