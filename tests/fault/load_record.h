// The outcomes of the calls of a load, over time. Thread-safe.
#ifndef HOTBED_TESTS_FAULT_LOAD_RECORD_H_
#define HOTBED_TESTS_FAULT_LOAD_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

// Times are CLOCK_BOOTTIME, ns.
class LoadRecord {
 public:
  // `slow_ms`: pushes that took longer are listed one by one.
  LoadRecord(int64_t begin_ns, double bucket_ms, double slow_ms)
      : begin_ns_(begin_ns), bucket_ms_(bucket_ms), slow_ns_(static_cast<int64_t>(slow_ms * 1e6)) {}

  void Pushed(uint32_t shard, int64_t sent_ns, int64_t now_ns, uint64_t ids);
  void Pulled(int64_t sent_ns, int64_t now_ns);
  void Failed(const absl::Status& status);
  void Indeterminate(const absl::Status& status);
  // Pushes that were due and not sent.
  void Shed(uint64_t count);
  // An indeterminate push that a retry found applied.
  void Resolved(uint64_t ids);

  // One line of JSON, to be read by tests/fault/meter.py. `shards`: of the table.
  std::string Json(size_t shards);

 private:
  struct Bucket {
    uint64_t pushes = 0;
    uint64_t pulls = 0;
    int64_t push_max_ns = 0;
    int64_t pull_max_ns = 0;
  };
  struct Slow {
    uint32_t shard;
    int64_t sent_ns;
    int64_t acked_ns;
  };

  Bucket& BucketOf(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteError(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t begin_ns_;
  const double bucket_ms_;
  const int64_t slow_ns_;
  absl::Mutex mu_;
  std::vector<Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> push_ns_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> pull_ns_ ABSL_GUARDED_BY(mu_);
  std::vector<Slow> slow_ ABSL_GUARDED_BY(mu_);
  uint64_t ids_acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t errors_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t indeterminate_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t shed_ ABSL_GUARDED_BY(mu_) = 0;
  std::string first_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_FAULT_LOAD_RECORD_H_
