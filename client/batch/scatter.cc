#include "client/batch/scatter.h"

#include <cstring>

#include "client/rows/row_convert.h"
#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hotbed {
namespace {

constexpr uint32_t kAnswerLookahead = 8;  // rows of the answer fetched early

void FenceStreamingStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <int kWrite>
void PrefetchRow(const uint8_t* row, uint32_t bytes) {
  for (uint32_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b, kWrite);
}

// The runs of a group, and what is needed to find the destination of an input.
struct Placer {
  const ScatterJob& job;
  const uint32_t dim;
  const uint32_t column_first;
  const uint32_t columns;  // that the part has
  const uint32_t wire_bytes;
  void (*const to_floats)(const uint8_t*, uint32_t, float*);

  explicit Placer(const ScatterJob& j)
      : job(j),
        dim(j.group->table->dim()),
        column_first(j.part->column_first),
        columns(j.part->columns),
        wire_bytes(RowWireBytes(j.wire_type, columns)),
        to_floats((j.streaming ? BestRowConverters().to_floats_streaming
                               : BestRowConverters().to_floats)[static_cast<int>(j.wire_type)]) {}

  // The destination of the part's columns of a row.
  uint8_t* Place(const ScatterTarget& target, uint32_t row) const {
    const uint64_t row_bytes = RowWireBytes(target.row_type, dim);
    const uint32_t element_bytes = target.row_type == RowType::kFp32 ? 4 : 2;
    return target.rows + row_bytes * row + uint64_t{element_bytes} * column_first;
  }

  void Write(const ScatterTarget& target, uint32_t row, const uint8_t* from, uint8_t exists) const {
    uint8_t* const to = Place(target, row);
    if (target.row_type == RowType::kFp32) {
      to_floats(from, columns, reinterpret_cast<float*>(to));
    } else if (job.streaming) {
      BestRowConverters().copy_streaming(from, wire_bytes, to);
    } else {
      std::memcpy(to, from, wire_bytes);
    }
    if (target.exists == nullptr) return;
    if (columns == dim) {
      target.exists[row] = exists;
    } else if (exists != 0) {
      // Answers of several slices may write this element concurrently.
      __atomic_store_n(&target.exists[row], uint8_t{1}, __ATOMIC_RELAXED);
    }
  }

  // Rows arrive in the order of the shards, so their destinations are scattered over the caller's
  // buffer.
  void PrefetchFirst(uint32_t unique) const {
    const ScatterTarget& target = job.targets[job.group->runs[0].feature];
    PrefetchRow<1>(Place(target, job.group->ids.first[unique]),
                   RowWireBytes(target.row_type, columns));
  }

  // One feature reads the table: an input is the index of a row in its buffer.
  void PlaceInOne(uint32_t unique, const uint8_t* from, uint8_t exists) const {
    const UniqueIds& ids = job.group->ids;
    const ScatterTarget& target = job.targets[job.group->runs[0].feature];
    for (uint32_t i = ids.first[unique]; i != kNoIndex; i = ids.next[i]) {
      Write(target, i, from, exists);
    }
  }

  // Several features do. The inputs of a chain increase, so the runs are walked along with it.
  void PlaceInMany(uint32_t unique, const uint8_t* from, uint8_t exists) const {
    const UniqueIds& ids = job.group->ids;
    const TableGroup::Run* run = job.group->runs.data();
    for (uint32_t i = ids.first[unique]; i != kNoIndex; i = ids.next[i]) {
      while (i >= run->end) ++run;
      const ScatterTarget& target = job.targets[run->feature];
      Write(target, i - run->begin, from, exists);
    }
  }
};

}  // namespace

void Scatter(const ScatterJob& job) {
  const Placer placer(job);
  const uint32_t* const order = job.group->split.order.data() + job.part->begin;
  const uint32_t rows = job.part->rows();
  const bool one = job.group->runs.size() == 1;
  for (uint32_t k = 0; k < rows; ++k) {
    if (k + kAnswerLookahead < rows) {
      PrefetchRow<0>(job.rows[k + kAnswerLookahead], placer.wire_bytes);
      if (one && !job.streaming) placer.PrefetchFirst(order[k + kAnswerLookahead]);
    }
    const uint8_t exists = job.flags == nullptr ? 0 : job.flags[k] & 1;
    if (one) {
      placer.PlaceInOne(order[k], job.rows[k], exists);
    } else {
      placer.PlaceInMany(order[k], job.rows[k], exists);
    }
  }
  if (job.streaming) FenceStreamingStores();
}

void ClearExists(const BatchPlan& plan, absl::Span<const ScatterTarget> targets) {
  for (const PlanPart& part : plan.parts()) {
    const TableGroup& group = plan.group(part);
    if (part.columns == group.table->dim() || part.column_first != 0) continue;
    for (const TableGroup::Run& run : group.runs) {
      uint8_t* const exists = targets[run.feature].exists;
      if (exists != nullptr) std::memset(exists, 0, run.end - run.begin);
    }
  }
}

uint64_t MarkMissing(const TableGroup& group, const PlanPart& part,
                     absl::Span<const ScatterTarget> targets) {
  uint64_t marked = 0;
  for (uint32_t k = part.begin; k < part.end; ++k) {
    const TableGroup::Run* run = group.runs.data();
    for (uint32_t i = group.ids.first[group.split.order[k]]; i != kNoIndex; i = group.ids.next[i]) {
      while (i >= run->end) ++run;
      const ScatterTarget& target = targets[run->feature];
      const uint32_t row = i - run->begin;
      const uint64_t row_bytes = RowWireBytes(target.row_type, group.table->dim());
      std::memset(target.rows + row_bytes * row, 0, row_bytes);
      if (target.exists != nullptr) target.exists[row] = 0;
      marked += target.missing[row] == 0 ? 1 : 0;
      target.missing[row] = 1;
    }
  }
  return marked;
}

void ClearSkipped(absl::Span<const FeatureIds> features, absl::Span<const ScatterTarget> targets) {
  for (size_t f = 0; f < features.size(); ++f) {
    const FeatureIds& feature = features[f];
    if (feature.skip == nullptr) continue;
    const uint64_t row_bytes = RowWireBytes(targets[f].row_type, feature.table->dim());
    for (size_t i = 0; i < feature.ids.size(); ++i) {
      if (feature.skip[i] == 0) continue;
      std::memset(targets[f].rows + row_bytes * i, 0, row_bytes);
      if (targets[f].exists != nullptr) targets[f].exists[i] = 0;
    }
  }
}

}  // namespace hotbed
