#include "serving/rows/row_search.h"

#include <algorithm>
#include <cmath>

#include "common/status_macros.h"
#include "row_math/nearness.h"

namespace hotbed {
namespace {

// Rows of one step: they stay in the cache while all vectors are compared with them.
constexpr uint64_t kStepBytes = 16 << 10;
constexpr uint32_t kStepRowsMax = 256;
// Elements that are compared between two looks at go_on.
constexpr uint64_t kLookElements = 4 << 20;

uint32_t StepRows(uint32_t row_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(kStepBytes / row_bytes, 4, kStepRowsMax));
}

double NormOf(absl::Span<const float> vector, const double* wide) {
  double square = 0;
  Nearness<Fp32Codec, RowMetric::kDot, 1>(reinterpret_cast<const uint8_t*>(vector.data()), 0, wide,
                                          static_cast<uint32_t>(vector.size()), 0, &square);
  return std::sqrt(square);
}

}  // namespace

RowSearch::RowSearch(const RowsView& view, const RowQuery& query)
    : view_(view),
      query_(query),
      dim_(view.coder().dim()),
      wide_dim_((dim_ + kNearnessLanes - 1) / kNearnessLanes * kNearnessLanes),
      rows_max_(StepRows(view.coder().row_bytes())) {
  const size_t count = query.vectors.size() / dim_;
  vectors_.resize(count * wide_dim_);
  for (size_t v = 0; v < count; ++v) {
    const absl::Span<const float> vector = query.vectors.subspan(v * dim_, dim_);
    double* const wide = vectors_.data() + v * wide_dim_;
    std::copy(vector.begin(), vector.end(), wide);
    norms_.push_back(NormOf(vector, wide));
    tops_.emplace_back(query.k, SmallerIsNearer(query.metric));
  }
  ids_.reserve(rows_max_);
  bytes_.resize(uint64_t{rows_max_} * view.coder().row_bytes());
}

void RowSearch::Add(uint64_t id, const uint8_t* row) {
  if (id < query_.first_id || id > query_.last_id) return;
  const uint64_t bytes = view_.coder().row_bytes();
  std::copy_n(row, bytes, bytes_.data() + ids_.size() * bytes);
  ids_.push_back(id);
}

bool RowSearch::ReadSome() {
  ids_.clear();
  const RowsView::Reader reader(view_);
  if (!query_.only_ids.has_value()) {
    return reader.Next(&walk_, rows_max_,
                       [this](uint64_t id, const uint8_t* row) { Add(id, row); }) > 0;
  }
  if (next_id_ == query_.only_ids->size()) return false;
  const size_t count = std::min<size_t>(rows_max_, query_.only_ids->size() - next_id_);
  for (const uint64_t id : query_.only_ids->subspan(next_id_, count)) {
    const uint8_t* const row = reader.Find(id);
    if (row != nullptr) Add(id, row);
  }
  next_id_ += count;
  return true;
}

void RowSearch::RankSome() {
  uint32_t picks[kStepRowsMax];
  double scores[kStepRowsMax];
  RankBatch batch;
  batch.rows = bytes_.data();
  batch.stride = view_.coder().row_bytes();
  batch.count = static_cast<uint32_t>(ids_.size());
  batch.dim = dim_;
  batch.metric = query_.metric;
  batch.picks = picks;
  batch.scores = scores;
  for (size_t v = 0; v < tops_.size(); ++v) {
    batch.vector = vectors_.data() + v * wide_dim_;
    batch.norm = norms_[v];
    batch.floor = tops_[v].floor();
    view_.coder().Rank(&batch);
    for (uint32_t p = 0; p < batch.picked; ++p) tops_[v].Offer({ids_[picks[p]], scores[p]});
  }
  rows_read_ += ids_.size();
}

absl::Status RowSearch::Run(absl::FunctionRef<absl::Status()> go_on) {
  uint64_t elements = kLookElements;
  while (ReadSome()) {
    RankSome();
    elements += (ids_.size() * tops_.size() + rows_max_) * dim_;
    if (elements < kLookElements) continue;
    elements = 0;
    HOTBED_RETURN_IF_ERROR(go_on());
    if (!view_.Holds()) return absl::OkStatus();
  }
  return absl::OkStatus();
}

std::vector<std::vector<ScoredRow>> RowSearch::Take() {
  std::vector<std::vector<ScoredRow>> rows;
  for (TopRows& top : tops_) rows.push_back(top.Take());
  return rows;
}

}  // namespace hotbed
