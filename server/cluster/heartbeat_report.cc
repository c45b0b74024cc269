#include "server/cluster/heartbeat_report.h"

#include <algorithm>

#include "proto/convert.h"
#include "server/net/stream_metrics.h"

namespace hotbed {
namespace {

constexpr size_t kWhyBytesMax = 300;  // as control.proto has it
// Counting takes a microsecond for each shard, here, and so does hearing of it at the coordinator:
// with many it is not done for every heartbeat. The coordinator splits by these figures, and learns
// of a full disk by them.
constexpr int64_t kCountNsPerShard = 1'000'000;
constexpr int64_t kCountNsMax = 2 * kSecondNs;

bool SameLoss(const ShardHost::LostReplica& a, const ShardHost::LostReplica& b) {
  return a.shard == b.shard && a.epoch == b.epoch;
}

void FillMember(const Member& member, v1::Member* message) {
  message->set_server(member.server);
  message->set_incarnation(member.incarnation);
}

// JoinReady and SilentMember have the same fields.
template <typename Message>
void FillShardMember(const ShardHost::JoinReady& from, Message* message) {
  message->set_shard(from.shard.packed());
  message->set_epoch(from.epoch);
  FillMember(from.member, message->mutable_member());
}

void FillTransfer(const TransferProgress& transfer, v1::TransferProgress* message) {
  message->set_shard(transfer.shard.packed());
  FillMember(transfer.to, message->mutable_to());
  message->set_bytes_copied(transfer.bytes_copied);
  message->set_bytes_total(transfer.bytes_total);
  message->set_bytes_per_s(transfer.bytes_per_s);
  message->set_passes(transfer.passes);
  message->set_changed_bytes_per_s(transfer.changed_bytes_per_s);
  message->set_beyond_rate(transfer.beyond_rate);
}

}  // namespace

void HeartbeatReport::FillHeld(bool asked_for,
                               google::protobuf::RepeatedPtrField<v1::HeldReplica>* held) const {
  for (const ShardHost::HeldReplica& replica : host_->HeldReplicas(asked_for)) {
    v1::HeldReplica* const message = held->Add();
    message->set_shard(replica.shard.packed());
    message->mutable_end()->set_epoch(replica.end.epoch);
    message->mutable_end()->set_lsn(replica.end.lsn);
    message->set_nothing(replica.nothing);
    message->set_damaged(replica.damaged);
    message->set_behind(replica.behind);
    message->set_member_of(replica.member_of);
    message->set_committed_step(replica.committed_step);
  }
}

void HeartbeatReport::FillRecollection(v1::Recollection* message) const {
  const ShardHost::Recollection recollection = host_->Recollect();
  for (const TableSpec& table : recollection.tables) *message->add_tables() = ToProto(table);
  for (const ShardRecord& record : recollection.records) ToProto(record, message->add_shards());
  for (const auto& [server, name] : recollection.servers) {
    v1::ServerInfo* const info = message->add_servers();
    info->set_server(server);
    info->set_name(name);
  }
}

bool HeartbeatReport::HasNews() const {
  const std::vector<ShardHost::LostReplica> lost = host_->LostReplicas();
  return host_->JoinsReady() != joins_ ||
         !std::equal(lost.begin(), lost.end(), lost_.begin(), lost_.end(), SameLoss);
}

void HeartbeatReport::Fill(v1::HeartbeatRequest* request) {
  if (const int64_t now_ns = clock_->NowNs(); now_ns >= count_at_ns_) {
    const HostStatus status = host_->Status();
    load_.Fill(status, StreamMetrics::Get().pull_seconds.Read(), now_ns, request->mutable_load());
    const auto shards = static_cast<int64_t>(status.shards.size());
    count_at_ns_ = now_ns + std::min(kCountNsMax, kCountNsPerShard * shards);
  }
  joins_ = host_->JoinsReady();
  for (const ShardHost::JoinReady& join : joins_) {
    FillShardMember(join, request->add_join_ready());
  }
  lost_ = host_->LostReplicas();
  for (const ShardHost::LostReplica& lost : lost_) {
    v1::LostReplica* const message = request->add_replicas_lost();
    message->set_shard(lost.shard.packed());
    message->set_epoch(lost.epoch);
    message->set_why(lost.why.substr(0, kWhyBytesMax));
  }
  for (const ShardHost::JoinReady& silent : host_->SilentMembers()) {
    FillShardMember(silent, request->add_silent());
  }
  FillHeld(/*asked_for=*/true, request->mutable_held());
  for (const TransferProgress& transfer : host_->Transfers()) {
    FillTransfer(transfer, request->add_transfers());
  }
}

}  // namespace hotbed
