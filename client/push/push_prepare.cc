#include "client/push/push_prepare.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/batch/batch_plan.h"
#include "client/batch/check_features.h"
#include "client/batch/dedupe.h"
#include "client/batch/gradient_clip.h"
#include "client/batch/gradient_sum.h"
#include "client/batch/resolve_ids.h"
#include "client/net/message_limits.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The working memory of each thread that pushes.
struct PushScratch {
  BatchPlan plan;
  Deduper deduper;
  std::vector<FeatureIds> features;
  std::vector<ResolvedIds> resolved;
  std::vector<SummedGradients> summed;
  std::vector<uint32_t> order;
};

absl::Status NotFinite(const TableHandle& table, uint64_t id, RowType type) {
  return absl::InvalidArgumentError(
      absl::StrCat("table ", table.name(), ": the gradient of id ", id, " is NaN or infinite",
                   type == RowType::kFp32 ? "" : " once narrowed to its wire type",
                   "; nothing of this step was sent (nan_policy of the table: reject)"));
}

// The bytes of the gradients of parts. Parts that are alike stand together.
class GradientBytes {
 public:
  GradientBytes(const BatchPlan& plan, const GradientSum& sum, const PushCall& call)
      : plan_(plan), sum_(sum), none_(call.deletes) {}

  uint64_t Of(const PlanPart& part) {
    if (none_) return 0;
    if (part.group != group_ || part.columns != columns_) {
      group_ = part.group;
      columns_ = part.columns;
      row_bytes_ = sum_.RowBytes(plan_.group(part), part.columns);
    }
    return row_bytes_ * part.rows();
  }

 private:
  const BatchPlan& plan_;
  const GradientSum& sum_;
  const bool none_;
  uint32_t group_ = kNoIndex;
  uint32_t columns_ = 0;
  uint64_t row_bytes_ = 0;
};

// Parts of one server lie side by side.
void OrderByServer(const BatchPlan& plan, const ClusterMap& map, std::vector<uint32_t>* order) {
  order->resize(plan.parts().size());
  thread_local std::vector<ServerId> servers;
  servers.resize(order->size());
  TargetFinder targets(map);
  for (uint32_t p = 0; p < order->size(); ++p) {
    const PlanPart& part = plan.parts()[p];
    (*order)[p] = p;
    servers[p] = targets.Of(plan.group(part).table->id(), part.shard)->primary;
  }
  if (std::is_sorted(servers.begin(), servers.end())) return;
  std::stable_sort(order->begin(), order->end(),
                   [&](uint32_t a, uint32_t b) { return servers[a] < servers[b]; });
}

// The part as it is sent, but for its shows and where its bytes are.
PushPart* AddPart(const TableGroup& group, const PlanPart& planned, PushCall* call) {
  PushPart& part = call->parts.emplace_back();
  part.call = call;
  part.table = group.table;
  part.shard = planned.shard;
  part.rows = planned.rows();
  part.column_first = planned.column_first;
  part.columns = planned.columns;
  part.last_of_shard = planned.last_of_shard;
  part.first_seq = SequenceOf(call->step, planned.first_number + 1);
  part.seq = SequenceOf(call->step, planned.number_limit);
  return &part;
}

// Places the parts `order` in one buffer, all ids and then all gradients, so that a message takes
// each as one piece. Rows that follow one another are gathered at once: parts of many shards have
// few rows each, and later rows are prefetched over their borders.
absl::Status FillBuffer(const BatchPlan& plan, absl::Span<const uint32_t> order,
                        absl::Span<const SummedGradients> summed, GradientSum* sum,
                        PushCall* call) {
  GradientBytes gradient_bytes(plan, *sum, *call);
  uint64_t id_bytes = 0;
  uint64_t bytes = 0;
  for (uint32_t p : order) {
    id_bytes += 8ull * plan.parts()[p].rows();
    bytes += gradient_bytes.Of(plan.parts()[p]);
  }
  const BufferRef& buffer = call->buffers.emplace_back(BufferRef::Allocate(id_bytes + bytes));
  char* ids = buffer.data();
  char* gradients = ids + id_bytes;
  for (size_t i = 0; i < order.size();) {
    uint64_t* const run_ids = reinterpret_cast<uint64_t*>(ids);
    uint8_t* const run_gradients = reinterpret_cast<uint8_t*>(gradients);
    PlanPart run = plan.parts()[order[i]];
    const TableGroup& group = plan.group(run);
    const bool shows = !call->deletes && sum->HasShows(group);
    do {
      const PlanPart& planned = plan.parts()[order[i]];
      PushPart* const part = AddPart(group, planned, call);
      part->buffer = &buffer;
      part->shows = shows;
      part->ids = {ids, 8ull * planned.rows()};
      part->gradients = {gradients, gradient_bytes.Of(planned)};
      ids += part->ids.size;
      gradients += part->gradients.size;
      call->bytes += part->bytes();
      ++i;
    } while (i < order.size() && run.Extend(plan.parts()[order[i]]));
    plan.GatherIds(run, run_ids);
    const uint32_t bad =
        call->deletes ? kNoIndex : sum->Gather(group, run, summed[run.group], run_gradients);
    if (bad != kNoIndex && group.table->options().nan_policy == NanPolicy::kReject) {
      return NotFinite(*group.table, run_ids[bad], call->gradient_type);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPartCount(const BatchPlan& plan) {
  for (const PlanPart& part : plan.parts()) {
    if (part.number_limit <= kPartsPerStepMax) continue;
    const TableHandle& table = *plan.group(part).table;
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name(), ": shard ", part.shard, " would take more than ",
        kPartsPerStepMax * RowsPerNumber(part.columns), " rows in one step; push less at once"));
  }
  return absl::OkStatus();
}

absl::Status CheckPushOptions(const PushOptions& options, uint64_t step) {
  const auto bad = [step](absl::string_view name, float value, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat("PushOptions::", name, " is ", value,
                                                   " at step ", step, "; it must be ", allowed,
                                                   "; nothing of this step was sent"));
  };
  if (options.has_learning_rate && !std::isfinite(options.learning_rate)) {
    return bad("learning_rate", options.learning_rate, "finite");
  }
  if (!std::isfinite(options.gradient_scale)) {
    return bad("gradient_scale", options.gradient_scale, "finite");
  }
  if (!(std::isfinite(options.clip_global_norm) && options.clip_global_norm >= 0)) {
    return bad("clip_global_norm", options.clip_global_norm, "finite and >= 0 (0: off)");
  }
  if (options.assign && (options.gradient_scale != 1.0f || options.clip_global_norm != 0.0f)) {
    return absl::InvalidArgumentError(
        "PushOptions::assign gives rows, not gradients: gradient_scale and clip_global_norm must "
        "be left alone; nothing of this step was sent");
  }
  return absl::OkStatus();
}

// Assigned rows are not summed, so an id may occur only once.
absl::Status CheckAssigned(const BatchPlan& plan) {
  for (const TableGroup& group : plan.groups()) {
    for (size_t u = 0; u < group.ids.unique.size(); ++u) {
      if (group.ids.next[group.ids.first[u]] == kNoIndex) continue;
      return absl::InvalidArgumentError(absl::StrCat("table ", group.table->name(), ": id ",
                                                     group.ids.unique[u],
                                                     " is assigned twice in one push; once is "
                                                     "allowed; nothing of this step was sent"));
    }
  }
  return absl::OkStatus();
}

// Makes the parts, with one buffer per message.
absl::Status FillParts(const PushScratch& scratch, uint64_t bytes_max, GradientSum* sum,
                       PushCall* call) {
  const BatchPlan& plan = scratch.plan;
  call->parts.reserve(plan.parts().size());
  const auto fill = [&](size_t begin, size_t end) {
    return FillBuffer(plan, absl::MakeConstSpan(scratch.order).subspan(begin, end - begin),
                      scratch.summed, sum, call);
  };
  GradientBytes gradient_bytes(plan, *sum, *call);
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < scratch.order.size(); ++i) {
    const PlanPart& part = plan.parts()[scratch.order[i]];
    const uint64_t part_bytes = 8ull * part.rows() + gradient_bytes.Of(part) + kSegmentHeaderBytes;
    if (i > begin && bytes + part_bytes > bytes_max) {
      HOTBED_RETURN_IF_ERROR(fill(begin, i));
      begin = i;
      bytes = 0;
    }
    bytes += part_bytes;
  }
  return begin == scratch.order.size() ? absl::OkStatus() : fill(begin, scratch.order.size());
}

}  // namespace

absl::Status PreparePush(absl::Span<const PushFeature> features, const PushOptions& options,
                         const PlanInput& input, uint32_t trainers, PushCall* call,
                         uint64_t* zeroed) {
  HOTBED_RETURN_IF_ERROR(call->deletes ? CheckDeletedFeatures(features)
                                       : CheckPushFeatures(features, options.assign));
  HOTBED_RETURN_IF_ERROR(CheckPushOptions(options, call->step));
  thread_local PushScratch scratch;
  scratch.features.clear();
  for (const PushFeature& feature : features) {
    scratch.features.push_back({static_cast<const TableHandle*>(feature.table), feature.ids});
  }
  HOTBED_RETURN_IF_ERROR(CheckFeatures(scratch.features, *input.map, input.owner));
  HOTBED_RETURN_IF_ERROR(
      ResolveFeatures(absl::MakeSpan(scratch.features), &scratch.resolved, zeroed));
  BatchPlan& plan = scratch.plan;
  plan.Build(scratch.features, *input.map, &scratch.deduper, call->gradient_type,
             input.segment_bytes_max - kSegmentHeaderBytes);
  HOTBED_RETURN_IF_ERROR(CheckPartCount(plan));
  GradientSum sum(features, options.gradient_scale, call->gradient_type);
  scratch.summed.resize(std::max(scratch.summed.size(), plan.groups().size()));
  if (options.assign || call->deletes) {
    if (!call->deletes) HOTBED_RETURN_IF_ERROR(CheckAssigned(plan));
    for (SummedGradients& none : scratch.summed) none = {};
  } else {
    ClipGradients(plan.groups(), options.clip_global_norm, trainers, &sum, &scratch.summed);
  }
  OrderByServer(plan, *input.map, &scratch.order);
  return FillParts(scratch, input.segment_bytes_max, &sum, call);
}

}  // namespace hotbed
