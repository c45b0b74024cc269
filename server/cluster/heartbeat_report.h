// The part of a heartbeat about this server's shards: load, joins, losses, silent members and
// snapshot transfers. It remembers the joins and losses of the last report, so that new ones need
// not wait for the next regular heartbeat. Thread-compatible.
#ifndef HOTBED_SERVER_CLUSTER_HEARTBEAT_REPORT_H_
#define HOTBED_SERVER_CLUSTER_HEARTBEAT_REPORT_H_

#include <vector>

#include "common/clock.h"
#include "proto/control.pb.h"
#include "server/cluster/load_report.h"
#include "server/host/shard_host.h"

namespace hotbed {

class HeartbeatReport {
 public:
  // `host` and `clock` outlive it.
  HeartbeatReport(const ShardHost* host, const Clock* clock) : host_(host), clock_(clock) {}

  // Fills the fields that come from the shard host. The load only if it was counted since the last
  // report: with many shards most of a heartbeat is the load.
  void Fill(v1::HeartbeatRequest* request);
  // The next report has the load, for a coordinator that has heard none.
  void TellLoad() { count_at_ns_ = 0; }
  // Adds the replicas that are here, as HeldReplicas says.
  void FillHeld(bool asked_for, google::protobuf::RepeatedPtrField<v1::HeldReplica>* held) const;
  void FillRecollection(v1::Recollection* message) const;
  // Whether the host has joins or losses that the last report lacks.
  bool HasNews() const;

 private:
  const ShardHost* const host_;
  const Clock* const clock_;
  LoadReport load_;
  int64_t count_at_ns_ = 0;                  // not before
  std::vector<ShardHost::JoinReady> joins_;  // as last reported
  std::vector<ShardHost::LostReplica> lost_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_HEARTBEAT_REPORT_H_
