// DB::Flush for callers that must not wait for room on the disk: a part of kv_store.cc.
//
// A thread of its own flushes, and continues after the callers have learnt that the disk is full.
// Callers that arrive during a flush share the next one. Thread-safe.
#ifndef HOTBED_KV_ROCKS_FLUSHER_H_
#define HOTBED_KV_ROCKS_FLUSHER_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/rocks_room.h"
#include "rocksdb/status.h"

namespace hotbed {

class RocksFlusher {
 public:
  // `flush` blocks until everything written before is on disk. Both outlive the flusher.
  RocksFlusher(std::function<rocksdb::Status()> flush, const RocksRoom* room);
  // Waits for a flush in progress.
  ~RocksFlusher();

  // OK: everything written before the call is on disk. NoSpace while the disk is full.
  rocksdb::Status Flush() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsWanted() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stops_ || asked_ > begun_; }

  const std::function<rocksdb::Status()> flush_;
  const RocksRoom* const room_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t asked_ ABSL_GUARDED_BY(mu_) = 0;  // the number of the last caller
  uint64_t begun_ ABSL_GUARDED_BY(mu_) = 0;  // the last caller whose flush has begun
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;  // the last caller whose flush has ended, with `result_`
  rocksdb::Status result_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_FLUSHER_H_
