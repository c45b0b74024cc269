#include "client/pull/pull_answer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {

PullAnswer::PullAnswer(const ServerReply& reply)
    : rows_(reply.fragments, reply.view->rows),
      flags_(reply.fragments, reply.view->flags),
      arg_max_(reply.fragments, reply.view->arg_max) {
  rows_.Skip(std::min(rows_.left(), reply.row_bytes_before));
}

// Segments of many shards have few rows each: rows that follow one another are taken at once, so
// that later ones are prefetched over the borders of segments.
absl::Status PullAnswer::TakeSegments(absl::Span<const uint32_t> parts, PullCall* call) {
  const absl::Span<const PlanPart> planned = call->scratch->plan.parts();
  for (size_t i = 0; i < parts.size();) {
    if (const PooledPart* const pooled = call->scratch->Pooled(parts[i])) {
      HOTBED_RETURN_IF_ERROR(TakePooled(*pooled, call));
      ++i;
      continue;
    }
    const size_t first = i;
    PlanPart run = planned[parts[i++]];
    while (i < parts.size() && parts[i] < planned.size() && run.Extend(planned[parts[i]])) ++i;
    HOTBED_RETURN_IF_ERROR(TakeRows(run, parts.subspan(first, i - first), call));
  }
  return absl::OkStatus();
}

absl::Status PullAnswer::TooShort(absl::Span<const uint32_t> parts, const PullCall& call) const {
  uint64_t bytes = 0;
  uint64_t rows = 0;
  for (const uint32_t p : parts) {
    bytes += call.scratch->RowBytesOf(p, call.wire_type);
    rows += call.scratch->IdsOf(p);
    if (bytes <= rows_.left() && (!call.want_flags || rows <= flags_.left())) continue;
    return absl::InternalError(
        absl::StrCat(call.scratch->TableOf(p).WhereOf(call.scratch->ShardOf(p)), ": answered ",
                     rows_.left(), " bytes, ", rows, " rows need ", bytes));
  }
  return absl::OkStatus();
}

void PullAnswer::SkipSegment(uint32_t part, const PullCall& call) {
  const auto skip = [](FragmentReader* from, uint64_t bytes) {
    from->Skip(std::min(from->left(), bytes));
  };
  skip(&rows_, call.scratch->RowBytesOf(part, call.wire_type));
  if (call.want_flags) skip(&flags_, call.scratch->IdsOf(part));
  const PooledPart* const pooled = call.scratch->Pooled(part);
  if (pooled == nullptr) return;
  const PooledFeature& feature = call.scratch->pooled.features()[pooled->feature];
  if (feature.arg_max != nullptr) skip(&arg_max_, 4ull * pooled->columns * pooled->bags());
}

absl::Status PullAnswer::TakeRows(const PlanPart& run, absl::Span<const uint32_t> parts,
                                  PullCall* call) {
  const uint32_t row_bytes = RowWireBytes(call->wire_type, run.columns);
  const uint64_t flag_bytes = call->want_flags ? run.rows() : 0;
  if (rows_.left() < uint64_t{row_bytes} * run.rows() || flags_.left() < flag_bytes) {
    return TooShort(parts, *call);
  }
  thread_local std::vector<const uint8_t*> pointers;
  thread_local WireScratch wire;
  pointers.resize(run.rows());
  wire.Clear();
  rows_.RowPointers(row_bytes, run.rows(), pointers.data(), &wire);
  ScatterJob job;
  job.group = &call->scratch->plan.group(run);
  job.part = &run;
  job.targets = call->scratch->targets;
  job.wire_type = call->wire_type;
  job.rows = pointers.data();
  job.flags = flag_bytes == 0 ? nullptr : flags_.Contiguous(flag_bytes, 1, &wire);
  job.streaming = call->streaming;
  Scatter(job);
  return absl::OkStatus();
}

absl::Status PullAnswer::TakePooled(const PooledPart& part, PullCall* call) {
  const PooledPlan& plan = call->scratch->pooled;
  const PooledFeature& feature = plan.features()[part.feature];
  const uint32_t row_bytes = RowWireBytes(call->wire_type, part.columns);
  const uint64_t bytes = uint64_t{row_bytes} * part.bags();
  const uint64_t flag_bytes = call->want_flags ? part.ids : 0;
  const uint64_t arg_bytes = feature.arg_max == nullptr ? 0 : 4ull * part.columns * part.bags();
  if (rows_.left() < bytes || flags_.left() < flag_bytes || arg_max_.left() < arg_bytes) {
    return absl::InternalError(absl::StrCat(feature.table->WhereOf(part.shard), ": answered ",
                                            rows_.left(), " bytes, ", part.bags(),
                                            " pooled rows need ", bytes, ", and ", arg_bytes,
                                            " of arg_max (", arg_max_.left(), " in the message)"));
  }
  thread_local std::vector<const uint8_t*> pointers;
  thread_local WireScratch wire;
  pointers.resize(part.bags());
  wire.Clear();
  rows_.RowPointers(row_bytes, part.bags(), pointers.data(), &wire);
  PooledJoin::Rows rows;
  rows.wire_type = call->wire_type;
  rows.rows = pointers.data();
  if (arg_bytes > 0) rows.arg_max = arg_max_.Contiguous(arg_bytes, 1, &wire);
  if (flag_bytes > 0) rows.flags = flags_.Contiguous(flag_bytes, 1, &wire);
  if (!call->scratch->join.Take(plan, part, rows)) {
    return absl::InternalError(absl::StrCat(feature.table->WhereOf(part.shard),
                                            ": answered an arg_max beyond the ids of its bag"));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
