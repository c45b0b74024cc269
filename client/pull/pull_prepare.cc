#include "client/pull/pull_prepare.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/batch/check_features.h"
#include "client/net/message_limits.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status CheckPullConsistency(const PullOptions& options) {
  if (options.strict && options.read_from == ReadFrom::kAny) {
    return absl::InvalidArgumentError(
        "PullOptions: strict pulls are answered by the primary alone; read_from is kAny, allowed: "
        "kDefault, kPrimary");
  }
  if (options.staleness_max < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("PullOptions::staleness_max is ",
                                                   absl::FormatDuration(options.staleness_max),
                                                   "; allowed: 0 (no limit) or more"));
  }
  return absl::OkStatus();
}

// The rows that a feature's buffer receives: one per id or per bag.
size_t FeatureRows(const PullFeature& feature) {
  return feature.bag_lengths.empty() ? feature.ids.size() : feature.bag_lengths.size();
}

// Moves the pooled features out of those that are pulled row by row.
void PlanPooledFeatures(absl::Span<const PullFeature> features, const PlanInput& input,
                        PullCall* call) {
  PullScratch& scratch = *call->scratch;
  scratch.pooled.Clear();
  const uint64_t part_bytes_max = input.segment_bytes_max - kSegmentHeaderBytes;
  for (size_t f = 0; f < features.size(); ++f) {
    const PullFeature& from = features[f];
    if (from.bag_lengths.empty()) continue;
    FeatureIds& ids = scratch.features[f];
    PooledFeature feature;
    feature.table = ids.table;
    feature.ids = ids.ids;
    feature.skip = ids.skip;
    feature.lengths = from.bag_lengths;
    feature.weights = from.id_weights;
    feature.pooling = from.pooling;
    feature.rows = static_cast<float*>(from.rows);
    feature.row_stride = from.row_stride == 0 ? ids.table->dim() : from.row_stride;
    feature.arg_max = from.arg_max;
    feature.exists = from.exists;
    feature.missing = from.missing;
    scratch.pooled.Add(feature, *input.map->Table(ids.table->id()), call->wire_type,
                       part_bytes_max);
    ids.ids = {};
    ids.skip = nullptr;
  }
  scratch.join.Begin(scratch.pooled);
}

// Places ids, lengths and weights of the pooled parts behind the `ids_before` ids of rows. Column
// slices of one table share them.
void LayOutBags(uint64_t ids_before, PullCall* call) {
  PullScratch& scratch = *call->scratch;
  const PooledPlan& plan = scratch.pooled;
  if (plan.parts().empty()) return;
  std::memcpy(call->ids.data() + 8 * ids_before, plan.ids().data(), 8 * plan.ids().size());
  call->lengths = BufferRef::Allocate(4 * plan.lengths().size());
  std::memcpy(call->lengths.data(), plan.lengths().data(), 4 * plan.lengths().size());
  if (!plan.weights().empty()) {
    call->weights = BufferRef::Allocate(4 * plan.weights().size());
    std::memcpy(call->weights.data(), plan.weights().data(), 4 * plan.weights().size());
  }
  const size_t first = scratch.plan.parts().size();
  for (size_t p = 0; p < plan.parts().size(); ++p) {
    scratch.part_offset[first + p] = ids_before + plan.parts()[p].id_at;
  }
}

// Parts of one server lie side by side, so that a message takes its ids as one piece.
void LayOutIds(const ClusterMap& map, PullCall* call) {
  PullScratch& scratch = *call->scratch;
  const uint32_t parts = scratch.PartCount();
  scratch.part_order.resize(parts);
  scratch.part_offset.resize(parts);
  scratch.part_server.resize(parts);
  TargetFinder targets(map);
  for (uint32_t p = 0; p < parts; ++p) {
    scratch.part_order[p] = p;
    scratch.part_server[p] = targets.Of(scratch.TableOf(p).id(), scratch.ShardOf(p))->primary;
  }
  const std::vector<ServerId>& servers = scratch.part_server;
  if (!std::is_sorted(servers.begin(), servers.end())) {
    std::stable_sort(scratch.part_order.begin(), scratch.part_order.end(),
                     [&](uint32_t a, uint32_t b) { return servers[a] < servers[b]; });
  }
  call->ids = BufferRef::Allocate(8 * (scratch.plan.part_rows() + scratch.pooled.ids().size()));
  uint64_t* const ids = reinterpret_cast<uint64_t*>(call->ids.data());
  uint64_t offset = 0;
  PlanPart run;  // parts whose ids are gathered at once
  uint64_t run_offset = 0;
  for (uint32_t p : scratch.part_order) {
    if (scratch.Pooled(p) != nullptr) continue;
    const PlanPart& part = scratch.plan.parts()[p];
    scratch.part_offset[p] = offset;
    if (run.rows() == 0 || !run.Extend(part)) {
      if (run.rows() > 0) scratch.plan.GatherIds(run, ids + run_offset);
      run = part;
      run_offset = offset;
    }
    offset += part.rows();
  }
  if (run.rows() > 0) scratch.plan.GatherIds(run, ids + run_offset);
  LayOutBags(offset, call);
}

}  // namespace

absl::Status CheckPull(absl::Span<const PullFeature> features, const PullOptions& options,
                       RowType wire_type) {
  HOTBED_RETURN_IF_ERROR(CheckPullFeatures(features, wire_type));
  return CheckPullConsistency(options);
}

absl::Status PlanPull(absl::Span<const PullFeature> features, const PlanInput& input,
                      PullCall* call, PullPlanCounts* counts) {
  PullScratch& scratch = *call->scratch;
  scratch.features.clear();
  scratch.targets.clear();
  uint64_t bytes = 0;
  for (const PullFeature& feature : features) {
    scratch.features.push_back(
        {static_cast<const TableHandle*>(feature.table), feature.ids, nullptr, feature.distinct});
    scratch.targets.push_back(
        {static_cast<uint8_t*>(feature.rows), feature.exists, feature.row_type, feature.missing});
    counts->ids += feature.ids.size();
    bytes += feature.ids.size() * RowWireBytes(feature.row_type, feature.table->dim());
    call->want_flags |= feature.exists != nullptr;
    call->partial |= feature.missing != nullptr;
    if (feature.missing != nullptr) std::memset(feature.missing, 0, FeatureRows(feature));
  }
  HOTBED_RETURN_IF_ERROR(CheckFeatures(scratch.features, *input.map, input.owner));
  HOTBED_RETURN_IF_ERROR(
      ResolveFeatures(absl::MakeSpan(scratch.features), &scratch.resolved, &counts->zeroed));
  PlanPooledFeatures(features, input, call);
  scratch.plan.Build(scratch.features, *input.map, &scratch.deduper, call->wire_type,
                     input.segment_bytes_max - kSegmentHeaderBytes);
  ClearExists(scratch.plan, scratch.targets);
  ClearSkipped(scratch.features, scratch.targets);
  call->streaming = bytes >= kStreamingBytesMin;
  for (uint32_t p = 0; p < scratch.PartCount(); ++p) {
    call->bytes += scratch.BytesOf(p, call->wire_type);
  }
  call->parts_left = scratch.PartCount();
  scratch.part_states.assign(scratch.PartCount(), 0);
  LayOutIds(*input.map, call);
  return absl::OkStatus();
}

}  // namespace hotbed
