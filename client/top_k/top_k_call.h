// One TopK of a client: asks each shard of the table, and keeps the nearest of all answers.
//
// The work is cut into parts, a shard and some of the vectors each, which a few threads ask for. A
// shard that has moved is asked for at its new server; the parts of one that was cut are asked for
// instead. Used once.
#ifndef HOTBED_CLIENT_TOP_K_TOP_K_CALL_H_
#define HOTBED_CLIENT_TOP_K_TOP_K_CALL_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/checkpoint_cluster.h"
#include "client/map/cluster_map.h"
#include "client/map/map_follower.h"
#include "common/clock.h"
#include "common/top_rows.h"
#include "hotbed/top_k.h"
#include "proto/top_k.pb.h"

namespace hotbed {

class TopKCall {
 public:
  struct Parts {
    const ClusterMapHolder* map = nullptr;
    MapFollower* follower = nullptr;
    CheckpointCluster* cluster = nullptr;  // its TopK is called by several threads
    const Clock* clock = nullptr;
  };
  // All outlive it. The arguments are valid.
  TopKCall(const Parts& parts, const TableOptions& table, absl::Span<const float> vectors,
           uint32_t k, const TopKOptions& options, int64_t deadline_ns);

  absl::StatusOr<std::vector<std::vector<ScoredRow>>> Run() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Part {
    uint64_t range_first = 0;
    uint64_t range_limit = 0;
    size_t vector_first = 0;
    size_t vector_limit = 0;
    int64_t not_before_ns = 0;
  };

  absl::Status Plan() ABSL_LOCKS_EXCLUDED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // OK: the part is answered, or others are to be asked for in its place.
  absl::Status Ask(Part part) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AskShard(const Part& part, const ShardRecord& record, const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Take(const Part& part, const v1::TopKReply& reply) ABSL_LOCKS_EXCLUDED(mu_);
  // The part is asked for again later.
  absl::Status Postpone(Part part, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<uint64_t> IdsOf(const ShardRange& range) const;

  const Parts parts_;
  const TableOptions& table_;
  const absl::Span<const float> vectors_;
  const uint32_t k_;
  const TopKOptions& options_;
  const int64_t deadline_ns_;
  absl::Mutex mu_;
  std::deque<Part> waiting_ ABSL_GUARDED_BY(mu_);
  size_t asked_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // of a part, for good
  std::vector<TopRows> tops_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_TOP_K_TOP_K_CALL_H_
