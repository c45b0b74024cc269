// Which versions a table's replica is to have, and how far it has got with each; the rows are in
// VersionedRows. Thread-safe.
#ifndef HOTBED_SERVING_TABLE_VERSIONS_H_
#define HOTBED_SERVING_TABLE_VERSIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/serving.pb.h"
#include "serving/rows/versioned_rows.h"

namespace hotbed {

class TableVersions {
 public:
  // From now on these, and no others.
  void Order(const std::vector<v1::ServedVersion>& versions, std::vector<uint64_t> current)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool Wants(uint64_t number) const ABSL_LOCKS_EXCLUDED(mu_);
  // Drops what is not ordered out of `rows`, and returns what is to be taken up next: the current
  // versions, then the newest. One that has failed comes again after some seconds.
  std::optional<v1::ServedVersion> Next(int64_t now_ns, VersionedRows* rows)
      ABSL_LOCKS_EXCLUDED(mu_);
  void NoteRead(uint64_t number, uint64_t rows, uint64_t rows_in_all) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteEnd(uint64_t number, const absl::Status& status, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Report(const VersionedRows& rows, v1::ReplicaReport* report) const ABSL_LOCKS_EXCLUDED(mu_);
  // For people: why lookups of a version are not answered.
  std::string WhyNot(uint64_t number) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Wanted {
    v1::ServedVersion version;
    uint64_t rows_read = 0;
    uint64_t rows_in_all = 0;
    std::string trouble;
    bool held = false;  // when Next was asked last
    // Attempts that failed, one after another; 0: none.
    int64_t first_failed_ns = 0;
    int64_t last_failed_ns = 0;
    int64_t not_before_ns = 0;
  };
  const Wanted* Find(uint64_t number) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  Wanted* Find(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::vector<Wanted> wanted_ ABSL_GUARDED_BY(mu_);     // in the order in which they are taken up
  std::vector<uint64_t> current_ ABSL_GUARDED_BY(mu_);  // of each model of the table
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_TABLE_VERSIONS_H_
