// PullEngine: the pooled features of a call.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/pull/pull_engine.h"

namespace hotbed {

// Takes the pooled features out of those that are pulled row by row.
void PullEngine::PlanPooled(absl::Span<const PullFeature> features, const ClusterMap& map,
                            PullCall* call) {
  PullScratch& scratch = *call->scratch;
  scratch.pooled.Clear();
  const uint64_t part_bytes_max = context_->MessageBytesMax(map) - kSegmentHeaderBytes;
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
    scratch.pooled.Add(feature, *map.Table(ids.table->id()), call->wire_type, part_bytes_max);
    ids.ids = {};
    ids.skip = nullptr;
  }
  scratch.join.Begin(scratch.pooled);
}

// Behind the ids of rows: once, whatever the number of slices that get them.
void PullEngine::LayOutBags(PullCall* call, uint64_t ids_before) {
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

bool PullEngine::ScatterPooled(const CallPtr& call, const PooledPart& part,
                               const v1::SegmentReply& segment, Answer* answer) {
  const PooledPlan& plan = call->scratch->pooled;
  const PooledFeature& feature = plan.features()[part.feature];
  const uint32_t row_bytes = RowWireBytes(call->wire_type, part.columns);
  const uint64_t bytes = uint64_t{row_bytes} * part.bags();
  const uint64_t flag_bytes = call->want_flags ? part.ids : 0;
  const uint64_t arg_bytes = feature.arg_max == nullptr ? 0 : 4ull * part.columns * part.bags();
  const std::string where = absl::StrCat("table ", feature.table->name(), " shard ", part.shard);
  if (segment.row_bytes() != bytes || answer->rows.left() < bytes ||
      answer->flags.left() < flag_bytes || answer->arg_max.left() < arg_bytes) {
    call->Close(absl::InternalError(
        absl::StrCat(where, ": answered ", segment.row_bytes(), " bytes (", answer->rows.left(),
                     " in the message), ", part.bags(), " pooled rows need ", bytes, ", and ",
                     arg_bytes, " of arg_max (", answer->arg_max.left(), " in the message)")));
    return false;
  }
  thread_local std::vector<const uint8_t*> pointers;
  thread_local WireScratch scratch;
  pointers.resize(part.bags());
  scratch.Clear();
  answer->rows.RowPointers(row_bytes, part.bags(), pointers.data(), &scratch);
  PooledJoin::Rows rows;
  rows.wire_type = call->wire_type;
  rows.rows = pointers.data();
  if (arg_bytes > 0) rows.arg_max = answer->arg_max.Contiguous(arg_bytes, 1, &scratch);
  if (flag_bytes > 0) rows.flags = answer->flags.Contiguous(flag_bytes, 1, &scratch);
  if (!call->scratch->join.Take(plan, part, rows)) {
    call->Close(absl::InternalError(
        absl::StrCat(where, ": answered an arg_max beyond the ids of its bag")));
    return false;
  }
  ClientCounters::Add(&context_->counters.rows_pulled, part.bags());
  return true;
}

}  // namespace hotbed
