// Translates RocksDB's errors into those of kv_store.h: a part of kv_store.cc. Thread-safe.
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

// Remembers errors of the disk, reported by RocksDB's background work or by Tell, until the disk
// has recovered. Also knows when the disk is full, which RocksDB does not learn (rocks_room.h).
class RocksErrors : public rocksdb::EventListener {
 public:
  // TryResume retries a file that could not be written, whatever the reason. RocksDB does so by
  // itself for a full disk, but treats a limit on the size of files as fatal.
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) override;

  // Reports an error of a file that is not one of RocksDB's own.
  void Tell(const rocksdb::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether resuming may help now. RocksDB reports an error a moment before it acts on it; a resume
  // in between would clear the report but not the error. While a file waits for room there is
  // nothing to resume, and the resume would wait too.
  absl::Status MayResume() const ABSL_LOCKS_EXCLUDED(mu_);
  // The reported error, else that of the room.
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
