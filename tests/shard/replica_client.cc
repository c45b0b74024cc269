// ReplicaClient: pushes until they are acknowledged.
#include <algorithm>

#include "common/clock.h"
#include "server/host/shard_host.h"
#include "tests/shard/attach_shard.h"
#include "tests/shard/replica_fixture.h"

namespace hotbed {
namespace {

constexpr int64_t kRetryNsMax = 30'000'000'000;

}  // namespace

SegmentResult ReplicaClient::TryPush(ShardId shard, uint64_t seq, uint64_t prev_seq, bool open,
                                     const std::vector<uint64_t>& ids,
                                     const std::vector<float>& gradients) {
  const ShardRecord record = cluster_->record(shard);
  TestPush push;
  push.session = session_;
  push.incarnation = 1;
  push.ids = {ids};
  push.gradients = {gradients};
  push.rows.emplace_back();
  const uint32_t dim = cluster_->table(shard.table).dim;
  for (size_t i = 0; i < ids.size(); ++i) {
    push.rows[0].push_back(reinterpret_cast<const uint8_t*>(push.gradients[0].data() + i * dim));
  }
  PushSegment& segment = push.segments.emplace_back();
  segment.shard_id = shard;
  segment.epoch = record.epoch;
  segment.ids = push.ids[0].data();
  segment.count = static_cast<uint32_t>(ids.size());
  segment.gradients = push.rows[0].data();
  segment.seq = seq;
  segment.prev_seq = prev_seq;
  segment.open = open;
  const bool up = cluster_->WithHost(record.primary.server, [&](ShardHost* host) {
    AttachShard(*host, shard, &push, &segment);
    host->Push(&push);
  });
  SegmentResult down;
  down.code = SegmentCode::kUnavailable;
  if (!up) return down;
  push.done.WaitForNotification();
  return segment.result;
}

SegmentResult ReplicaClient::CommitStep(ShardId shard, uint64_t step,
                                        const std::vector<SessionId>& sessions) {
  const ShardRecord record = cluster_->record(shard);
  ShardHost* const host = cluster_->host(record.primary.server);
  TestPush push;
  push.ids = {sessions};
  PushSegment& segment = push.segments.emplace_back();
  AttachShard(*host, shard, &push, &segment);
  segment.shard_id = shard;
  segment.epoch = record.epoch;
  segment.ids = push.ids[0].data();
  segment.count = static_cast<uint32_t>(sessions.size());
  segment.commit_step = step;
  host->Push(&push);
  push.done.WaitForNotification();
  return segment.result;
}

Lsn ReplicaClient::Push(ShardId shard, uint64_t step, const std::vector<uint64_t>& ids,
                        const std::vector<float>& gradients) {
  const auto [chain, opens] = chain_.try_emplace(shard, 0);
  const uint64_t seq = step << 20 | 1;
  const int64_t begun_ns = Clock::Real()->NowNs();
  for (;;) {
    const SegmentResult result = TryPush(shard, seq, chain->second, opens, ids, gradients);
    const int64_t now_ns = Clock::Real()->NowNs();
    if (result.code == SegmentCode::kOk) {
      chain->second = seq;
      longest_ns_ = std::max(longest_ns_, now_ns - begun_ns);
      return result.lsn;
    }
    const bool passes =
        result.code == SegmentCode::kUnavailable || result.code == SegmentCode::kWrongEpoch ||
        result.code == SegmentCode::kUnknownShard || result.code == SegmentCode::kReadOnly ||
        result.code == SegmentCode::kResourceExhausted;
    if (!passes || now_ns - begun_ns > kRetryNsMax) {
      ADD_FAILURE() << shard.ToString() << " seq " << seq << ": code "
                    << static_cast<int>(result.code) << " " << result.detail;
      return 0;
    }
    Clock::Real()->SleepNs(500'000);
  }
}

}  // namespace hotbed
