// One call of the output layer to all shards of a table: one request per server, in parallel. A
// shard that moves or is cut meanwhile, or whose server is away, is asked for again, at its new
// server or in its parts, until the deadline. Thread-compatible.
#ifndef HOTBED_CLIENT_OUTPUT_SOFTMAX_CALL_H_
#define HOTBED_CLIENT_OUTPUT_SOFTMAX_CALL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/map/checkpoint_cluster.h"
#include "client/map/cluster_map.h"
#include "client/map/map_follower.h"
#include "client/map/table_handle.h"
#include "client/net/retry.h"
#include "common/clock.h"
#include "common/ids.h"
#include "proto/softmax.pb.h"

namespace hotbed {

// Where the pushes of a layer stand at a shard. One push of a layer is under way at a time, so
// there is nothing to chain (compare client/push/push_chain.h).
struct SoftmaxChain {
  uint64_t known_seq = 0;
  bool opened = false;
};
using SoftmaxChains = std::map<uint32_t, SoftmaxChain>;  // by the index of the shard

class SoftmaxCall {
 public:
  struct Parts {
    ClusterMapHolder* map;
    MapFollower* follower;
    CheckpointCluster* cluster;
    const Clock* clock;
    RetryPolicy* retry;
  };

  // All outlive it. `request` has everything but the shards; `chains` is null unless it updates.
  SoftmaxCall(const Parts& parts, const TableHandle* table, bool gradient,
              const v1::SoftmaxRequest* request, SoftmaxChains* chains, int64_t deadline_ns);

  // Calls `take` with every answer and its request; the sums are those of shards that no other
  // answer has. DeadlineExceeded names the rows that are left.
  using Take = absl::FunctionRef<void(const v1::SoftmaxRequest&, const v1::SoftmaxReply&)>;
  absl::Status Run(Take take);
  uint64_t wire_bytes() const { return wire_bytes_; }

 private:
  struct Rows {
    uint64_t first = 0;
    uint64_t limit = 0;
  };
  // A request to one server.
  struct Ask {
    std::string address;
    v1::SoftmaxRequest request;
    absl::StatusOr<v1::SoftmaxReply> reply = absl::UnknownError("not asked");
  };

  // The requests for the rows that are left, as the map is now.
  absl::StatusOr<std::vector<Ask>> Plan();
  void AskAll(std::vector<Ask>* asks);
  absl::Status TakeAnswer(const Ask& ask);
  absl::Status TakeShard(const v1::SoftmaxShard& asked, const v1::SoftmaxShardReply& reply);
  void Answered(const v1::SoftmaxShard& shard);
  absl::Status Pause(int attempt);

  const Parts parts_;
  const TableHandle& table_;
  const bool gradient_;
  const v1::SoftmaxRequest& request_;
  SoftmaxChains* const chains_;
  const int64_t deadline_ns_;
  std::vector<Rows> left_;
  absl::Status last_error_ = absl::UnavailableError("no server is known");
  uint32_t retry_after_ms_ = 0;
  bool busy_ = false;
  uint64_t wire_bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_OUTPUT_SOFTMAX_CALL_H_
