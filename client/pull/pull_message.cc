#include "client/pull/pull_message.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "proto/convert.h"
#include "proto/segments.h"

namespace hotbed {
namespace {

struct PullBulk {
  OutgoingMessage::Bulk ids{v1::PullRequest::kIdsFieldNumber, {}};
  OutgoingMessage::Bulk lengths{v1::PullRequest::kLengthsFieldNumber, {}};
  OutgoingMessage::Bulk weights{v1::PullRequest::kWeightsFieldNumber, {}};
};

// Appends `count` elements of `size` bytes each, from element `first` of `from` on.
void AppendElements(const BufferRef& from, uint64_t size, uint64_t first, uint64_t count,
                    OutgoingMessage::Bulk* bulk) {
  bulk->Append(from, from.data() + size * first, size * count);
}

// The segments of a group share the table, or the pooled feature.
const void* GroupOf(const PullScratch& scratch, uint32_t part) {
  const PooledPart* const pooled = scratch.Pooled(part);
  if (pooled == nullptr) return &scratch.TableOf(part);
  return &scratch.pooled.features()[pooled->feature];
}

void BeginGroup(const PullScratch& scratch, uint32_t part, v1::PullGroup* group) {
  group->set_table(scratch.TableOf(part).id());
  const PooledPart* const pooled = scratch.Pooled(part);
  if (pooled == nullptr) return;
  const PooledFeature& feature = scratch.pooled.features()[pooled->feature];
  const bool max = feature.pooling == BagPooling::kMax;
  group->set_pooling(max ? v1::POOLING_MAX : v1::POOLING_SUM);
  group->set_weighted(feature.weights != nullptr);
  group->set_want_arg_max(feature.arg_max != nullptr);
}

void AddSegment(const PullCall& call, uint32_t part, const TableRoute::Target& target,
                TableHandle::SeenShards* seen, v1::PullGroup* group, PullBulk* bulk) {
  const PullScratch& scratch = *call.scratch;
  const uint32_t shard = scratch.ShardOf(part);
  const uint32_t ids = scratch.IdsOf(part);
  group->add_shards(target.shard);
  group->add_epochs(target.epoch);
  group->add_id_counts(ids);
  group->add_lsns_min(call.lane == Lane::kPull ? seen->Min(shard, target.epoch) : Lsn{0});
  AppendElements(call.ids, 8, scratch.part_offset[part], ids, &bulk->ids);
  const PooledPart* const pooled = scratch.Pooled(part);
  if (pooled == nullptr) return;
  group->add_bag_counts(pooled->bags());
  AppendElements(call.lengths, 4, pooled->begin, pooled->bags(), &bulk->lengths);
  if (group->weighted()) {
    AppendElements(call.weights, 4, pooled->weight_at, pooled->ids, &bulk->weights);
  }
}

}  // namespace

OutgoingMessage BuildPullMessage(const PullCall& call, absl::Span<const uint32_t> parts,
                                 const ClusterMap& map, int64_t left_ns, bool may_join) {
  thread_local v1::PullHeader header;  // keeps its columns' memory
  header.Clear();
  header.set_row_type(ToProto(call.wire_type));
  header.set_want_flags(call.want_flags);
  header.set_strict(call.strict);
  header.set_staleness_ms_max(call.staleness_ms_max);
  if (!call.traceparent.empty()) header.add_traceparents(call.traceparent);
  OutgoingMessage message;
  message.deadline_ms = static_cast<uint32_t>(
      std::clamp<int64_t>(left_ns / 1'000'000, 1, std::numeric_limits<int32_t>::max()));
  const PullScratch& scratch = *call.scratch;
  PullBulk bulk;
  bool want_arg_max = false;
  const void* of_group = nullptr;
  v1::PullGroup* group = nullptr;
  const TableRoute* route = nullptr;
  std::optional<TableHandle::SeenShards> seen;
  for (const uint32_t p : parts) {
    if (const void* const of = GroupOf(scratch, p); of != of_group) {
      if (group != nullptr) PackColumns(group);
      of_group = of;
      group = header.add_groups();
      BeginGroup(scratch, p, group);
      route = map.Table(group->table());
      seen.emplace(scratch.TableOf(p));
      want_arg_max |= group->want_arg_max();
    }
    AddSegment(call, p, route->targets[scratch.ShardOf(p)], &*seen, group, &bulk);
    message.reply_bytes += scratch.BytesOf(p, call.wire_type);
    message.row_bytes += scratch.RowBytesOf(p, call.wire_type);
  }
  seen.reset();
  if (group != nullptr) PackColumns(group);
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(parts.size());
  // Joined requests must have the same bulk fields. Flags and arg_max would need ranges of their
  // own in a joined reply, so calls that ask for them travel alone.
  if (may_join && !call.want_flags && !want_arg_max) {
    message.join_key = 1u + header.row_type() + (bulk.lengths.pieces.empty() ? 0 : 8) +
                       (bulk.weights.pieces.empty() ? 0 : 16) + (call.strict ? 32 : 0) +
                       (uint64_t{call.staleness_ms_max} << 8);
  }
  message.bulk.push_back(std::move(bulk.ids));
  if (!bulk.lengths.pieces.empty()) message.bulk.push_back(std::move(bulk.lengths));
  if (!bulk.weights.pieces.empty()) message.bulk.push_back(std::move(bulk.weights));
  return message;
}

}  // namespace hotbed
