// What RocksDB says, in the words of kv_store.h: parts of kv_store.cc. Thread-safe.
#ifndef HOTBED_KV_ROCKS_ERRORS_H_
#define HOTBED_KV_ROCKS_ERRORS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kv/rocks_room.h"
#include "rocksdb/listener.h"
#include "rocksdb/slice.h"
#include "rocksdb/status.h"

namespace hotbed {

inline rocksdb::Slice ToSlice(absl::string_view s) { return rocksdb::Slice(s.data(), s.size()); }
inline absl::string_view ToView(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view what);

// Remembers what was reported of the disk, by RocksDB's background work or by Tell, until it has
// recovered; and that its disk is full, which RocksDB is not told of.
class RocksErrors : public rocksdb::EventListener {
 public:
  // A file that could not be written is tried again by TryResume, whatever the reason: RocksDB
  // does so by itself for a full disk, and calls it fatal for a limit of the size of files.
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) override;

  // Of a file that is written beside RocksDB's own.
  void Tell(const rocksdb::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether resuming may help now. RocksDB tells of an error a moment before it heeds it: what
  // resumes in between would clear what then stays. While a file waits for room there is nothing to
  // resume, and what resumes would wait too.
  absl::Status MayResume() const ABSL_LOCKS_EXCLUDED(mu_);
  // What was told, else what the room says.
  rocksdb::Status error() const ABSL_LOCKS_EXCLUDED(mu_);
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

  RocksRoom* room() { return &room_; }

 private:
  mutable absl::Mutex mu_;
  rocksdb::Status error_ ABSL_GUARDED_BY(mu_);
  int64_t told_ns_ ABSL_GUARDED_BY(mu_) = 0;
  RocksRoom room_;
};

}  // namespace hotbed

#endif  // HOTBED_KV_ROCKS_ERRORS_H_
