#include "client/pull/pull_message.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/convert.h"

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

// Adds the fields of a pooled segment. Returns whether it asks for arg_max.
bool AddPooledSegment(const PullCall& call, const PooledPart& part, v1::PullSegment* segment,
                      PullBulk* bulk) {
  const PooledFeature& feature = call.scratch->pooled.features()[part.feature];
  const bool max = feature.pooling == BagPooling::kMax;
  segment->set_pooling(max ? v1::POOLING_MAX : v1::POOLING_SUM);
  segment->set_bag_count(part.bags());
  segment->set_weighted(feature.weights != nullptr);
  segment->set_want_arg_max(feature.arg_max != nullptr);
  AppendElements(call.lengths, 4, part.begin, part.bags(), &bulk->lengths);
  if (feature.weights != nullptr) {
    AppendElements(call.weights, 4, part.weight_at, part.ids, &bulk->weights);
  }
  return feature.arg_max != nullptr;
}

}  // namespace

OutgoingMessage BuildPullMessage(const PullCall& call, absl::Span<const uint32_t> parts,
                                 const ClusterMap& map, int64_t left_ns, bool may_join) {
  thread_local v1::PullHeader header;  // keeps its segments' memory
  header.Clear();
  header.set_row_type(ToProto(call.wire_type));
  header.set_want_flags(call.want_flags);
  header.set_strict(call.strict);
  header.set_staleness_ms_max(call.staleness_ms_max);
  OutgoingMessage message;
  message.deadline_ms = static_cast<uint32_t>(
      std::clamp<int64_t>(left_ns / 1'000'000, 1, std::numeric_limits<int32_t>::max()));
  const PullScratch& scratch = *call.scratch;
  PullBulk bulk;
  bool want_arg_max = false;
  for (uint32_t p : parts) {
    const TableHandle& table = scratch.TableOf(p);
    const ShardId shard{table.id(), scratch.ShardOf(p)};
    const Epoch epoch = map.Shard(shard)->epoch;
    v1::PullSegment* segment = header.add_segments();
    segment->set_shard(shard.packed());
    segment->set_epoch(epoch);
    segment->set_id_count(scratch.IdsOf(p));
    if (call.lane == Lane::kPull) segment->set_lsn_min(table.LsnMin(shard.index, epoch));
    AppendElements(call.ids, 8, scratch.part_offset[p], scratch.IdsOf(p), &bulk.ids);
    message.reply_bytes += scratch.BytesOf(p, call.wire_type);
    if (const PooledPart* const part = scratch.Pooled(p); part != nullptr) {
      want_arg_max |= AddPooledSegment(call, *part, segment, &bulk);
    }
  }
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
