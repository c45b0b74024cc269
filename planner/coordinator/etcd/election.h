// Which of several coordinators leads: the one that holds a key in etcd. The key belongs to a
// lease, so that it goes away with its holder.
//
// It serves liveness only. Two coordinators may both take themselves for the leader for a while;
// that one of them can write is ensured by the compare of the leader's record in each transaction.
//
// Thread-safe. A thread of its own calls etcd.
#ifndef HOTBED_PLANNER_COORDINATOR_ETCD_ELECTION_H_
#define HOTBED_PLANNER_COORDINATOR_ETCD_ELECTION_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "planner/coordinator/etcd/etcd_client.h"

namespace hotbed {

class Election {
 public:
  // How long after its last sign of life a leader is replaced; etcd's least.
  static constexpr int64_t kLeaseS = 2;

  // `client` must outlive it. `address` is what others are told of this one.
  Election(EtcdClient* client, std::string address);
  // Gives the leadership back, so that another one need not wait.
  ~Election();

  // Holds while etcd was heard of lately enough, so that no other one leads meanwhile.
  bool leads() const ABSL_LOCKS_EXCLUDED(mu_);
  // Grows when this one begins to lead, and when it is known that another one may have led since.
  // So nobody has led in between where it leads with the same number again, such as after etcd did
  // not answer for a while.
  uint64_t term() const ABSL_LOCKS_EXCLUDED(mu_);
  // The address of the leader, or empty while nobody is known to lead.
  std::string leader() const ABSL_LOCKS_EXCLUDED(mu_);
  // Why etcd cannot be asked, or OK.
  absl::Status trouble() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the key if nobody has it.
  absl::Status Campaign() ABSL_LOCKS_EXCLUDED(mu_);
  // The key belongs to this one by its lease; or, for 0, to another one or to nobody.
  void NoteHolder(int64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Renews the lease. An error once it is lost, or may be.
  absl::Status Keep() ABSL_LOCKS_EXCLUDED(mu_);

  EtcdClient* const client_;
  const std::string address_;
  const std::string key_;
  int64_t lease_ = 0;                       // 0: none; for the thread
  std::atomic<int64_t> held_until_ns_ = 0;  // at least; written by the thread
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  bool leads_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t term_lease_ ABSL_GUARDED_BY(mu_) = 0;  // by which this one has led; 0: it has not
  std::string leader_ ABSL_GUARDED_BY(mu_);
  absl::Status trouble_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_ETCD_ELECTION_H_
