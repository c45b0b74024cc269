#include "tests/server/fake_shard_host.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/kernels/kernel_rows.h"
#include "tests/kernels/pool_twin.h"

namespace hotbed {

struct FakeShardHost::FakeShard {
  uint32_t dim;
  Epoch epoch;
  std::string table;
};

// The streams see a Shard as a name only; this program links no other definition.
uint32_t ShardHost::DimOf(const Shard& shard) { return *reinterpret_cast<const uint32_t*>(&shard); }

const std::string& ShardHost::TableNameOf(const Shard& shard) {
  return FakeShardHost::TableOf(shard);
}

bool ShardHost::IsHashed(const Shard& /*shard*/) { return false; }

const std::string& FakeShardHost::TableOf(const Shard& shard) {
  return reinterpret_cast<const FakeShard*>(&shard)->table;
}

void FakeShardHost::AddShard(ShardId shard, uint32_t dim, Epoch epoch, const std::string& table) {
  absl::MutexLock lock(&mu_);
  shards_[shard] = std::make_shared<FakeShard>(FakeShard{dim, epoch, table});
  ShardRecord record;
  record.shard = shard;
  record.epoch = epoch;
  record.range.column_limit = dim;
  records_[shard] = record;
}

void FakeShardHost::AddRecord(const ShardRecord& record) {
  absl::MutexLock lock(&mu_);
  records_[record.shard] = record;
}

void FakeShardHost::Hold() {
  absl::MutexLock lock(&mu_);
  holding_ = true;
}

void FakeShardHost::ReleaseHeld() {
  std::vector<PullWork*> pulls;
  std::vector<PushWork*> pushes;
  {
    absl::MutexLock lock(&mu_);
    holding_ = false;
    pulls.swap(held_pulls_);
    pushes.swap(held_pushes_);
  }
  for (PullWork* work : pulls) Serve(work);
  for (PushWork* work : pushes) Serve(work);
}

size_t FakeShardHost::held() const {
  absl::MutexLock lock(&mu_);
  return held_pulls_.size() + held_pushes_.size();
}

uint64_t FakeShardHost::pulls() const {
  absl::MutexLock lock(&mu_);
  return pulls_;
}

std::vector<FakeShardHost::PushSeen> FakeShardHost::pushes() const {
  absl::MutexLock lock(&mu_);
  return pushes_;
}

size_t FakeShardHost::assignments() const {
  absl::MutexLock lock(&mu_);
  return assignments_;
}

Incarnation FakeShardHost::incarnation() const {
  absl::MutexLock lock(&mu_);
  return incarnation_;
}

void FakeShardHost::Notify() {
  std::function<void()> listener;
  {
    absl::MutexLock lock(&mu_);
    listener = listener_;
  }
  if (listener) listener();
}

void FakeShardHost::set_waiting(std::vector<ShardEpoch> waiting) {
  absl::MutexLock lock(&mu_);
  waiting_ = std::move(waiting);
}

std::shared_ptr<Shard> FakeShardHost::Find(ShardId shard) const {
  absl::MutexLock lock(&mu_);
  const auto it = shards_.find(shard);
  if (it == shards_.end()) return nullptr;
  return std::shared_ptr<Shard>(it->second, reinterpret_cast<Shard*>(it->second.get()));
}

// Shards are never taken out.
std::shared_ptr<const void> FakeShardHost::FindAll(absl::Span<const ShardId> ids,
                                                   std::vector<Shard*>* shards) const {
  shards->clear();
  for (const ShardId id : ids) shards->push_back(Find(id).get());
  return nullptr;
}

SegmentResult FakeShardHost::Check(ShardId shard, Epoch epoch, uint32_t count) const {
  SegmentResult result;
  const auto it = shards_.find(shard);
  if (it == shards_.end()) {
    result.code = records_.count(shard) > 0 ? SegmentCode::kWrongEpoch : SegmentCode::kUnknownShard;
    result.detail = absl::StrCat(shard.ToString(), " is not held here");
    return result;
  }
  result.epoch = it->second->epoch;
  result.lsn = 99;
  if (epoch != it->second->epoch) {
    result.code = SegmentCode::kWrongEpoch;
    result.detail =
        absl::StrCat(shard.ToString(), " is at epoch ", it->second->epoch, ", not ", epoch);
  } else if (count > kPullIdsMax) {
    result.code = SegmentCode::kResourceExhausted;
    result.detail = absl::StrCat(count, " ids, the limit is ", kPullIdsMax);
  }
  return result;
}

void FakeShardHost::Pull(PullWork* work) {
  {
    absl::MutexLock lock(&mu_);
    ++pulls_;
    if (holding_) {
      held_pulls_.push_back(work);
      return;
    }
  }
  Serve(work);
}

void FakeShardHost::Push(PushWork* work) {
  {
    absl::MutexLock lock(&mu_);
    if (holding_) {
      held_pushes_.push_back(work);
      return;
    }
  }
  Serve(work);
}

void FakeShardHost::Serve(PullWork* work) {
  for (PullSegment& segment : work->segments) {
    {
      absl::MutexLock lock(&mu_);
      segment.result = Check(segment.shard_id, segment.epoch, segment.count);
    }
    if (segment.result.code != SegmentCode::kOk) continue;
    if (segment.pooling != RowPooling::kNone) {
      ServeBags(*work, &segment);
      continue;
    }
    const uint32_t dim = DimOf(*segment.shard);
    const uint32_t row_bytes = RowWireBytes(work->row_type, dim);
    for (uint32_t i = 0; i < segment.count; ++i) {
      if (segment.ids[i] >= kIdLimit) {
        segment.result.code = SegmentCode::kOutOfRange;
        segment.result.detail = absl::StrCat("id ", segment.ids[i], ", the limit is ", kIdLimit);
        break;
      }
      uint8_t* const row = segment.rows + uint64_t{i} * row_bytes;
      std::memset(row, 0, row_bytes);
      for (uint32_t c = 0; c < dim && work->row_type == RowType::kFp32; ++c) {
        const float value = static_cast<float>(segment.ids[i] * 1000 + c);
        std::memcpy(row + 4 * c, &value, 4);
      }
      if (segment.flags != nullptr) segment.flags[i] = segment.ids[i] & 1;
    }
  }
  work->Done();
}

void FakeShardHost::ServeBags(const PullWork& work, PullSegment* segment) {
  const uint32_t dim = DimOf(*segment->shard);
  uint64_t next = 0;
  for (uint32_t b = 0; b < segment->bags; ++b) {
    std::vector<std::vector<float>> rows;
    std::vector<float> weights;
    for (uint32_t k = 0; k < segment->bag_lengths[b]; ++k, ++next) {
      std::vector<float>& row = rows.emplace_back();
      for (uint32_t c = 0; c < dim; ++c) {
        row.push_back(static_cast<float>(segment->ids[next] * 1000 + c));
      }
      if (segment->weights != nullptr) weights.push_back(segment->weights[next]);
      if (segment->flags != nullptr) segment->flags[next] = segment->ids[next] & 1;
    }
    const PooledBag bag = PoolByHand(segment->pooling, dim, rows, weights);
    const std::vector<uint8_t> wire = PlainRow(bag.row, work.row_type);
    std::memcpy(segment->rows + wire.size() * b, wire.data(), wire.size());
    if (segment->arg_max != nullptr) {
      std::memcpy(segment->arg_max + 4ull * dim * b, bag.arg_max.data(), 4ull * dim);
    }
  }
}

void FakeShardHost::Serve(PushWork* work) {
  for (PushSegment& segment : work->segments) {
    absl::MutexLock lock(&mu_);
    segment.result = Check(segment.shard_id, segment.epoch, segment.count);
    segment.result.last_seq = segment.seq;
    if (segment.result.code != SegmentCode::kOk) continue;
    PushSeen seen;
    seen.shard = segment.shard_id;
    seen.seq = segment.seq;
    seen.ids.assign(segment.ids, segment.ids + segment.count);
    const uint32_t row_bytes = RowWireBytes(work->gradient_type, DimOf(*segment.shard));
    for (uint32_t i = 0; i < segment.count; ++i) {
      seen.gradients.emplace_back(segment.gradients[i], segment.gradients[i] + row_bytes);
    }
    pushes_.push_back(std::move(seen));
  }
  work->Done();
}

std::optional<ShardRecord> FakeShardHost::RecordOf(ShardId shard) const {
  absl::MutexLock lock(&mu_);
  const auto it = records_.find(shard);
  if (it == records_.end()) return std::nullopt;
  return it->second;
}

ShardHost::Identity FakeShardHost::identity() const {
  absl::MutexLock lock(&mu_);
  return identity_;
}

absl::Status FakeShardHost::SetIdentity(const Identity& identity) {
  absl::MutexLock lock(&mu_);
  identity_ = identity;
  return absl::OkStatus();
}

void FakeShardHost::SetIncarnation(Incarnation incarnation) {
  absl::MutexLock lock(&mu_);
  incarnation_ = incarnation;
}

absl::Status FakeShardHost::ApplyAssignment(const std::vector<TableSpec>&,
                                            const std::vector<ShardRecord>& records,
                                            const std::vector<TableId>& tables_dropped) {
  absl::MutexLock lock(&mu_);
  ++assignments_;
  lease_when_assigned_ns_ = lease_until_ns_;
  tables_dropped_ = tables_dropped;
  for (const ShardRecord& record : records) {
    records_[record.shard] = record;
    if (record.active) waiting_.clear();
  }
  return absl::OkStatus();
}

std::vector<ShardHost::ShardEpoch> FakeShardHost::ShardsToActivate() const {
  absl::MutexLock lock(&mu_);
  return waiting_;
}

void FakeShardHost::SetActivationListener(std::function<void()> listener) {
  absl::MutexLock lock(&mu_);
  listener_ = std::move(listener);
}

HostStatus FakeShardHost::Status() const {
  absl::MutexLock lock(&mu_);
  HostStatus status = status_;
  for (const auto& [id, shard] : shards_) status.shards.emplace_back().shard = id;
  return status;
}

void FakeShardHost::SetReplicaSink(ReplicaSink* sink) {
  absl::MutexLock lock(&mu_);
  sink_ = sink;
}

void FakeShardHost::OnReplicaMessage(const Member& from, ReplicaMessage message) {
  ReplicaSink* sink = nullptr;
  {
    absl::MutexLock lock(&mu_);
    sink = sink_;
  }
  if (sink != nullptr) sink->OnReplicaMessage(from, std::move(message));
}

void FakeShardHost::OnPeerLost(const Member& peer) {
  ReplicaSink* sink = nullptr;
  {
    absl::MutexLock lock(&mu_);
    sink = sink_;
  }
  if (sink != nullptr) sink->OnPeerLost(peer);
}

void FakeShardHost::set_joins(std::vector<JoinReady> joins) {
  absl::MutexLock lock(&mu_);
  joins_ = std::move(joins);
}

void FakeShardHost::set_lost_replicas(std::vector<LostReplica> lost) {
  absl::MutexLock lock(&mu_);
  lost_replicas_ = std::move(lost);
}

std::vector<ShardHost::LostReplica> FakeShardHost::LostReplicas() const {
  absl::MutexLock lock(&mu_);
  return lost_replicas_;
}

void FakeShardHost::set_silent(std::vector<JoinReady> silent) {
  absl::MutexLock lock(&mu_);
  silent_ = std::move(silent);
}

void FakeShardHost::set_transfers(std::vector<TransferProgress> transfers) {
  absl::MutexLock lock(&mu_);
  transfers_ = std::move(transfers);
}

void FakeShardHost::set_held(std::vector<ShardId> held) {
  absl::MutexLock lock(&mu_);
  held_shards_ = std::move(held);
}

void FakeShardHost::set_status(HostStatus status) {
  absl::MutexLock lock(&mu_);
  status_ = std::move(status);
}

std::vector<ShardHost::JoinReady> FakeShardHost::JoinsReady() const {
  absl::MutexLock lock(&mu_);
  return joins_;
}

std::vector<ShardHost::JoinReady> FakeShardHost::SilentMembers() const {
  absl::MutexLock lock(&mu_);
  return silent_;
}

std::vector<TransferProgress> FakeShardHost::Transfers() const {
  absl::MutexLock lock(&mu_);
  return transfers_;
}

std::vector<ShardId> FakeShardHost::Held() const {
  absl::MutexLock lock(&mu_);
  return held_shards_;
}

void FakeShardHost::SetTransferLimits(const TransferLimits& limits) {
  absl::MutexLock lock(&mu_);
  transfer_limits_ = limits;
}

TransferLimits FakeShardHost::transfer_limits() const {
  absl::MutexLock lock(&mu_);
  return transfer_limits_;
}

void FakeShardHost::LearnGivenOut(uint64_t session, const std::vector<GivenOut::TableStep>& steps) {
  absl::MutexLock lock(&mu_);
  session_given_ = session;
  steps_given_ = steps;
}

uint64_t FakeShardHost::session_given() const {
  absl::MutexLock lock(&mu_);
  return session_given_;
}

std::vector<GivenOut::TableStep> FakeShardHost::steps_given() const {
  absl::MutexLock lock(&mu_);
  return steps_given_;
}

void FakeShardHost::SetLease(int64_t until_ns) {
  absl::MutexLock lock(&mu_);
  lease_until_ns_ = until_ns;
}

int64_t FakeShardHost::lease_until_ns() const {
  absl::MutexLock lock(&mu_);
  return lease_until_ns_;
}

int64_t FakeShardHost::lease_when_assigned_ns() const {
  absl::MutexLock lock(&mu_);
  return lease_when_assigned_ns_;
}

std::vector<TableId> FakeShardHost::tables_dropped() const {
  absl::MutexLock lock(&mu_);
  return tables_dropped_;
}

}  // namespace hotbed
