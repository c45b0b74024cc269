#include "serving/rows/row_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/status_macros.h"
#include "row_math/code_filter.h"
#include "row_math/nearness.h"

namespace hotbed {
namespace {

// Rows of one step: they stay in the second-level cache while all vectors are compared with them.
constexpr uint64_t kStepBytes = 64 << 10;
constexpr uint32_t kStepRowsMax = 1024;
// Elements that are compared between two looks at go_on.
constexpr uint64_t kLookElements = 4 << 20;

uint32_t StepRows(uint32_t row_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(kStepBytes / row_bytes, 4, kStepRowsMax));
}

double NormOf(absl::Span<const float> vector, const double* wide) {
  double square = 0;
  Nearness<Fp32Codec, RowMetric::kDot, 1>({reinterpret_cast<const uint8_t*>(vector.data())}, wide,
                                          static_cast<uint32_t>(vector.size()), 0, &square);
  return std::sqrt(square);
}

// Other copies of the rows may be well.
absl::Status BelowError(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(status.message());
}

}  // namespace

RowSearch::RowSearch(const RowsView& view, const RowQuery& query)
    : view_(view),
      query_(query),
      dim_(view.coder().dim()),
      wide_dim_((dim_ + kNearnessLanes - 1) / kNearnessLanes * kNearnessLanes),
      rows_max_(StepRows(view.coder().row_bytes())),
      elements_(kLookElements) {
  const size_t count = query.vectors.size() / dim_;
  const uint32_t bits = view.coder().code_bits();
  const uint64_t code_bytes = bits == 0 ? 0 : CodeQueryBytes(bits, dim_);
  vectors_.resize(count * wide_dim_);
  codes_.resize(count * code_bytes);
  for (size_t v = 0; v < count; ++v) {
    const absl::Span<const float> vector = query.vectors.subspan(v * dim_, dim_);
    double* const wide = vectors_.data() + v * wide_dim_;
    std::copy(vector.begin(), vector.end(), wide);
    norms_.push_back(NormOf(vector, wide));
    if (bits != 0) {
      quick_.push_back(MakeCodeQuery(bits, wide, dim_, codes_.data() + v * code_bytes));
    }
    tops_.emplace_back(query.k, SmallerIsNearer(query.metric));
  }
}

void RowSearch::Offer(size_t vector, uint64_t id, double score) {
  if (id >= query_.first_id && id <= query_.last_id) tops_[vector].Offer({id, score});
}

RankBatch RowSearch::BatchOf(size_t vector) const {
  RankBatch batch;
  batch.row_bytes = view_.coder().row_bytes();
  batch.dim = dim_;
  batch.metric = query_.metric;
  batch.vector = vectors_.data() + vector * wide_dim_;
  batch.norm = norms_[vector];
  batch.floor = tops_[vector].floor();
  if (!quick_.empty()) batch.quick = &quick_[vector];
  return batch;
}

double RowSearch::ScoreOf(size_t vector, const uint8_t* row) const {
  uint32_t pick;
  double score;
  RankBatch batch = BatchOf(vector);
  batch.at = &row;
  batch.count = 1;
  batch.floor = std::numeric_limits<double>::quiet_NaN();  // so that every row is picked
  batch.picks = &pick;
  batch.scores = &score;
  view_.coder().Rank(&batch);
  return score;
}

absl::Status RowSearch::RankSome(size_t count, OfferRow offer, GoOn go_on) {
  uint32_t picks[kStepRowsMax];
  double scores[kStepRowsMax];
  for (size_t v = 0; v < tops_.size(); ++v) {
    RankBatch batch = BatchOf(v);
    batch.at = rows_.data();
    batch.count = static_cast<uint32_t>(count);
    batch.at_count = static_cast<uint32_t>(rows_.size());
    batch.picks = picks;
    batch.scores = scores;
    view_.coder().Rank(&batch);
    for (uint32_t p = 0; p < batch.picked; ++p) {
      offer(static_cast<uint32_t>(v), picks[p], scores[p]);
    }
  }
  rows_read_ += count;
  elements_ += (count * tops_.size() + count) * dim_;
  if (elements_ < kLookElements) return absl::OkStatus();
  elements_ = 0;
  dropped_ = !view_.Holds();
  return go_on();
}

absl::Status RowSearch::RankPart(uint32_t part, GoOn go_on) {
  const Reader reader(view_);
  ServedRows::StripeWalk walk;
  reader.Begin(part, &walk);
  rows_.clear();
  for (;;) {
    // Rows of the next step are there already, so that they are fetched ahead in this one.
    const size_t known = rows_.size();
    rows_.resize(rows_max_ + RankAheadRows(view_.coder().row_bytes()));
    rows_.resize(known + reader.Next(part, &walk, rows_.data() + known,
                                     static_cast<uint32_t>(rows_.size() - known)));
    if (rows_.empty() || dropped_) return absl::OkStatus();
    const size_t count = std::min<size_t>(rows_.size(), rows_max_);
    const auto offer = [&](uint32_t v, uint32_t number, double score) {
      reader.Identify(part, walk, rows_[number], [&](uint64_t id, const uint8_t* now) {
        // A row that has changed since the walk began is compared as it is now.
        Offer(v, id, now == rows_[number] ? score : ScoreOf(v, now));
      });
    };
    HOTBED_RETURN_IF_ERROR(RankSome(count, offer, go_on));
    rows_.erase(rows_.begin(), rows_.begin() + static_cast<int64_t>(count));
  }
}

absl::Status RowSearch::RankOnly(absl::Span<const uint64_t> ids, GoOn go_on) {
  std::vector<uint64_t> found, missed;
  std::vector<uint8_t> below;
  for (size_t first = 0; first < ids.size() && !dropped_; first += rows_max_) {
    const Reader reader(view_);
    rows_.clear();
    found.clear();
    missed.clear();
    for (const uint64_t id : ids.subspan(first, rows_max_)) {
      const uint8_t* const row = reader.Find(id);
      if (row == nullptr) {
        missed.push_back(id);
        continue;
      }
      rows_.push_back(row);
      found.push_back(id);
    }
    if (!missed.empty() && view_.below != nullptr && view_.below->needed()) {
      const uint32_t row_bytes = view_.coder().row_bytes();
      below.resize(missed.size() * row_bytes);
      HOTBED_RETURN_IF_ERROR(
          BelowError(view_.below->Read(missed, [&](size_t at, uint64_t id, const uint8_t* row) {
            rows_.push_back(std::copy_n(row, row_bytes, below.data() + at * row_bytes) - row_bytes);
            found.push_back(id);
          })));
    }
    const auto offer = [&](uint32_t v, uint32_t number, double score) {
      Offer(v, found[number], score);
    };
    HOTBED_RETURN_IF_ERROR(RankSome(rows_.size(), offer, go_on));
  }
  return absl::OkStatus();
}

absl::Status RowSearch::Run(GoOn go_on) {
  if (query_.only_ids.has_value()) return RankOnly(*query_.only_ids, go_on);
  const auto below = [this] { return view_.below != nullptr && view_.below->needed(); };
  if (!below()) {
    HOTBED_RETURN_IF_ERROR(RankMemory(go_on));
    if (!below()) return absl::OkStatus();
    // Memory has given rows up meanwhile, maybe before the walk came to them.
    for (TopRows& top : tops_) top.Take();
  }
  return RankBelow(go_on);
}

absl::Status RowSearch::RankBelow(GoOn go_on) {
  const uint32_t row_bytes = view_.coder().row_bytes();
  std::vector<uint8_t> bytes(uint64_t{rows_max_} * row_bytes);
  std::vector<uint64_t> ids;
  absl::Status ranked;
  const auto rank = [&] {
    rows_.clear();
    for (size_t i = 0; i < ids.size(); ++i) rows_.push_back(bytes.data() + i * row_bytes);
    ranked = RankSome(
        rows_.size(),
        [&](uint32_t v, uint32_t number, double score) { Offer(v, ids[number], score); }, go_on);
    ids.clear();
    return ranked.ok();
  };
  HOTBED_RETURN_IF_ERROR(BelowError(view_.below->Scan([&](uint64_t id, const uint8_t* row) {
    std::copy_n(row, row_bytes, bytes.data() + ids.size() * row_bytes);
    ids.push_back(id);
    return ids.size() < rows_max_ || rank();
  })));
  if (ranked.ok() && !ids.empty()) rank();
  return ranked;
}

absl::Status RowSearch::RankMemory(GoOn go_on) {
  for (uint32_t part = 0; part < view_.parts() && !dropped_; ++part) {
    HOTBED_RETURN_IF_ERROR(RankPart(part, go_on));
  }
  return absl::OkStatus();
}

std::vector<std::vector<ScoredRow>> RowSearch::Take() {
  std::vector<std::vector<ScoredRow>> rows;
  for (TopRows& top : tops_) rows.push_back(top.Take());
  return rows;
}

}  // namespace hotbed
