// Room on the store's disk: a write that the disk refuses for lack of space waits here, and RocksDB
// never sees the error. After such an error RocksDB's DB::Resume() may never return (7.8.3: it
// waits for a flush that no thread carries out). A part of kv_store.cc. Thread-safe.
#ifndef HOTBED_KV_ROCKS_ROOM_H_
#define HOTBED_KV_ROCKS_ROOM_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/status.h"

namespace hotbed {

// Whether an errno says that the disk, a quota or a limit of the size of files has no room.
bool IsForWantOfRoom(int error);

class RocksRoom {
 public:
  // Before StartWaiting, and after StopWaiting, every wait ends at once: a store that is opening or
  // closing cannot report that it waits.
  void StartWaiting() ABSL_LOCKS_EXCLUDED(mu_);
  void StopWaiting() ABSL_LOCKS_EXCLUDED(mu_);

  // One operation on the disk, retried until it succeeds. Thread-compatible; does not outlive the
  // room.
  class Try {
   public:
    // Null: it waits for nothing.
    Try(RocksRoom* room, const std::string& path) : room_(room), path_(path) {}
    ~Try();
    Try(const Try&) = delete;
    Try& operator=(const Try&) = delete;
    // The disk refused with `error` (an errno). True: retry now, after a pause in which room may
    // have appeared. False: the error is another one, or waiting is off.
    bool Again(int error);

   private:
    RocksRoom* const room_;
    const std::string& path_;
    bool waits_ = false;
  };

  // NoSpace while a write waits, and for 200 ms after a refusal: a disk that has a little room from
  // time to time counts as full. Names the file and the reason.
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
