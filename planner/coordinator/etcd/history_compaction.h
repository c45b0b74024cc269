// Drops etcd's history of keys while this coordinator leads: nothing reads it, and a full etcd
// takes no changes. What is older than an interval goes, once per interval.
//
// Thread-safe. A thread of its own calls etcd.
#ifndef HOTBED_PLANNER_COORDINATOR_ETCD_HISTORY_COMPACTION_H_
#define HOTBED_PLANNER_COORDINATOR_ETCD_HISTORY_COMPACTION_H_

#include <cstdint>
#include <functional>
#include <thread>  // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "planner/coordinator/etcd/etcd_client.h"

namespace hotbed {

class HistoryCompaction {
 public:
  // `client` must outlive it. Zero: nothing is dropped.
  HistoryCompaction(EtcdClient* client, absl::Duration interval, std::function<bool()> leads);
  ~HistoryCompaction();

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Compact();

  EtcdClient* const client_;
  const absl::Duration interval_;
  const std::function<bool()> leads_;
  int64_t revision_ = 0;  // of etcd an interval ago; for the thread
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_ETCD_HISTORY_COMPACTION_H_
