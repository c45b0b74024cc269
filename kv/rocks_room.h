// Room on the store's disk: who is refused some waits for it here, and RocksDB never hears of it.
// For RocksDB a full disk is an error after which its DB::Resume() may never return (7.8.3: it
// waits for a flush that no thread carries out). A part of kv_store.cc. Thread-safe.
#ifndef HOTBED_KV_ROCKS_ROOM_H_
#define HOTBED_KV_ROCKS_ROOM_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/status.h"

namespace hotbed {

class RocksRoom {
 public:
  // Before StartWaiting, and after StopWaiting, every wait ends at once: a store that opens or
  // closes has nobody who could say that it waits.
  void StartWaiting() ABSL_LOCKS_EXCLUDED(mu_);
  void StopWaiting() ABSL_LOCKS_EXCLUDED(mu_);

  // One thing that is done on the disk, tried until it is done. Thread-compatible; not longer than
  // the room.
  class Try {
   public:
    Try(RocksRoom* room, const std::string& path) : room_(room), path_(path) {}
    ~Try();
    Try(const Try&) = delete;
    Try& operator=(const Try&) = delete;
    // The disk refused with `error` (of errno). Whether to try again, after a pause in which there
    // may have come room; false: the error is another one, or nobody waits.
    bool Again(int error);

   private:
    RocksRoom* const room_;
    const std::string& path_;
    bool waits_ = false;
  };

  // NoSpace while anybody waits, and for 200 ms after a refusal: a disk that has room for a little
  // from time to time is full. Names the file and why it was refused.
  rocksdb::Status error() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = true;  // not between StartWaiting and StopWaiting
  int waiters_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t refused_ns_ ABSL_GUARDED_BY(mu_) = 0;
  std::string refused_ ABSL_GUARDED_BY(mu_);  // empty: never
};

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_ROOM_H_
