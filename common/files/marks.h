// The file MARKS of a data directory: how far the other files must reach. A start compares them
// with it, so that a file that is missing, cut short or older never passes for a new one.
//
// A mark is stored in memory that is shared with the file (FileSystem::OpenShared): storing costs
// no system call and survives kill -9. A power loss may bring back an earlier mark, unless Sync was
// called since; so marks are lower bounds, and one that would be wrong when old (kLogOldest,
// kLogRuns, kStart, kSpillChanges) is synced before it is relied on. Each has two slots with a
// checksum, written in turn: a store that a kill interrupts leaves the one before.
//
// Thread-safe; the threads that set one mark agree on an order.
#ifndef HOTBED_COMMON_FILES_MARKS_H_
#define HOTBED_COMMON_FILES_MARKS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"

namespace hotbed {

struct Mark {
  uint64_t a = 0;
  uint64_t b = 0;
  uint32_t c = 0;
  friend bool operator==(const Mark& x, const Mark& y) = default;
};

class Marks {
 public:
  // Values are part of the format. What a, b and c are:
  enum Field {
    kStart = 0,         // number and random id of the last start; 1: IDENTITY has them
    kCatalog = 1,       // generation and checksum of CATALOG (KeptFile)
    kPromises = 2,      // the same of PROMISES
    kLogOldest = 3,     // the first segment that must be there
    kLogWritten = 4,    // segment and offset of the log's end; checksum of the record before it
    kLogSynced = 5,     // segment and offset up to which the log was synced; as before
    kSpill = 6,         // KvState of the rows after the last flush
    kSpillChanges = 7,  // 1: the rows may have another KvState::file by now
    kFrozen = 8,        // number of the last frozen snapshot; its KvState::bytes and crc
    kLogRuns = 9,       // the run that writes the log, and the one that wrote it before
    kSpillRuns = 10,    // the run that opened the rows last, and the one before
    kFields = 11,
  };

  // NotFound: there is no such file, and `make` is false. DataLoss: it is damaged or cut short.
  static absl::StatusOr<std::unique_ptr<Marks>> Open(const std::string& path, FileSystem* files,
                                                     bool make);

  // Zeros: never set.
  Mark Get(Field field) const ABSL_LOCKS_EXCLUDED(mu_);
  void Set(Field field, const Mark& mark) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Sync() { return file_->Sync(); }

  const std::string& path() const { return path_; }

 private:
  struct Slot {
    uint64_t a;
    uint64_t b;
    uint32_t c;
    uint32_t turn;  // grows by one per store; 0: never stored
    uint32_t field;
    uint32_t crc;
  };

  Marks(std::string path, std::unique_ptr<SharedFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Load();
  char* SlotAt(int field, uint32_t turn) const;

  const std::string path_;
  const std::unique_ptr<SharedFile> file_;
  mutable absl::Mutex mu_;
  Slot newest_[kFields] ABSL_GUARDED_BY(mu_) = {};
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_MARKS_H_
