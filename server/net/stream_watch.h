// Ticks the live streams of a data server, so that a stream notices a peer that does not read, or a
// message that has waited beyond its deadline.
//
// Thread-safe. A stream adds itself when its call has begun and removes itself when its last
// reference goes. Streams count ticks instead of reading a clock, so that a server that was stopped
// for a while (a debugger, a suspended machine) does not blame its peers.
#ifndef HOTBED_SERVER_NET_STREAM_WATCH_H_
#define HOTBED_SERVER_NET_STREAM_WATCH_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class StreamWatch {
 public:
  static constexpr int64_t kTickMs = 50;
  static constexpr int64_t TicksOf(int64_t ms) { return (ms + kTickMs - 1) / kTickMs; }

  class Watched {
   public:
    // False: the last reference has gone already. True: Unwatch() follows.
    virtual bool TryWatch() = 0;
    virtual void Tick(int64_t now_ns) = 0;
    virtual void Unwatch() = 0;

   protected:
    ~Watched() = default;
    // TryWatch() for a class that counts its references.
    static bool TryRef(std::atomic<int>* references) {
      int refs = references->load(std::memory_order_relaxed);
      while (refs > 0 &&
             !references->compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel)) {
      }
      return refs > 0;
    }
  };

  void Add(Watched* stream) {
    absl::MutexLock lock(&mu_);
    streams_.insert(stream);
  }
  void Remove(Watched* stream) {
    absl::MutexLock lock(&mu_);
    streams_.erase(stream);
  }
  // Called by one thread, every kTickMs.
  void Tick(int64_t now_ns) {
    {
      absl::MutexLock lock(&mu_);
      for (Watched* stream : streams_) {
        if (stream->TryWatch()) ticking_.push_back(stream);
      }
    }
    for (Watched* stream : ticking_) {
      stream->Tick(now_ns);
      stream->Unwatch();
    }
    ticking_.clear();
  }

 private:
  absl::Mutex mu_;
  absl::flat_hash_set<Watched*> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<Watched*> ticking_;  // used by Tick only
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_STREAM_WATCH_H_
