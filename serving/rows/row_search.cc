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
// Shorter runs are compared together, as rows that lie anywhere.
constexpr uint32_t kRunRowsMin = 64;
// With few vectors a search takes little longer than to read the rows, and one Reader is held for
// all of them. Places of rows that change are not used again meanwhile, so that longer searches
// hold one per stripe. In larger tables the memory of a stripe has long runs of its own.
constexpr size_t kWholeVectorsMax = 8;
constexpr uint64_t kWholeRowsMax = 32 << 20;
constexpr size_t kMetRows = 64;  // beyond twice k, that are kept without their ids
constexpr double kNoFloor = std::numeric_limits<double>::quiet_NaN();

// Whole sixteens, which is how many rows of codes are compared at once.
uint32_t StepRows(uint32_t row_bytes) {
  const uint64_t rows = kStepBytes / row_bytes / 16 * 16;
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows, 16, kStepRowsMax));
}

uint64_t CodeBytes(const RowCoder& coder) {
  return coder.code_bits() == 0 ? 0 : CodeQueryBytes(coder.code_bits(), coder.dim());
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
      rows_max_(StepRows(view.coder().row_bytes())),
      vectors_(query.vectors.size() / dim_, dim_),
      codes_(query.vectors.size() / dim_, CodeBytes(view.coder())),
      floats_(query.vectors.size() / dim_, view.coder().code_bits() == 0 ? dim_ : 0),
      late_(view.version == nullptr && query.first_id == 0 && query.last_id == ~uint64_t{0}),
      met_(query.vectors.size() / dim_),
      floors_(met_.size(), kNoFloor),
      elements_(kLookElements) {
  const size_t count = query.vectors.size() / dim_;
  const uint32_t bits = view.coder().code_bits();
  for (size_t v = 0; v < count; ++v) {
    const absl::Span<const float> vector = query.vectors.subspan(v * dim_, dim_);
    double* const wide = vectors_[v];
    std::copy(vector.begin(), vector.end(), wide);
    norms_.push_back(NormOf(vector, wide));
    if (bits != 0) {
      quick_.push_back(MakeCodeQuery(bits, wide, dim_, codes_[v]));
    } else {
      quick_floats_.push_back(MakeFloatQuery(vector.data(), dim_, floats_[v]));
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
  batch.vector = vectors_[vector];
  batch.norm = norms_[vector];
  batch.floor = tops_[vector].floor();
  if (!(Nearer(batch.floor, floors_[vector]))) batch.floor = floors_[vector];
  if (!quick_.empty()) batch.quick = &quick_[vector];
  if (!quick_floats_.empty()) batch.quick_floats = &quick_floats_[vector];
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

// Whether `a` comes before `b`, as in ScoresBefore; neither before itself.
bool RowSearch::Nearer(double a, double b) const {
  return ScoresBefore({0, a}, {0, b}, SmallerIsNearer(query_.metric));
}

absl::Status RowSearch::Compare(RankBatch rows, OfferRow offer, GoOn go_on) {
  uint32_t picks[kStepRowsMax];
  double scores[kStepRowsMax];
  for (size_t v = 0; v < tops_.size(); ++v) {
    RankBatch batch = BatchOf(v);
    batch.rows = rows.rows;
    batch.stride = rows.stride;
    batch.at = rows.at;
    batch.at_count = rows.at_count;
    batch.count = rows.count;
    batch.picks = picks;
    batch.scores = scores;
    view_.coder().Rank(&batch);
    for (uint32_t p = 0; p < batch.picked; ++p) {
      offer(static_cast<uint32_t>(v), picks[p], scores[p]);
    }
  }
  rows_read_ += rows.count;
  elements_ += (rows.count * tops_.size() + rows.count) * dim_;
  if (elements_ < kLookElements) return absl::OkStatus();
  elements_ = 0;
  dropped_ = !view_.Holds();
  return go_on();
}

absl::Status RowSearch::RankSome(size_t count, OfferRow offer, GoOn go_on) {
  RankBatch rows;
  rows.at = rows_.data();
  rows.count = static_cast<uint32_t>(count);
  rows.at_count = static_cast<uint32_t>(rows_.size());
  return Compare(rows, offer, go_on);
}

absl::Status RowSearch::RankRun(const Reader& reader, const RowsView::Walk& walk,
                                const ServedRows::Run& run, GoOn go_on) {
  RankBatch rows;
  rows.rows = run.rows;
  rows.stride = view_.latest->row_stride();
  rows.count = run.count;
  const auto offer = [&](uint32_t v, uint32_t number, double score) {
    const uint8_t* const row = run.rows + rows.stride * number;
    Keep(reader, walk, v, {row, reader.StripeOf(walk, run, row), score});
  };
  return Compare(rows, offer, go_on);
}

absl::Status RowSearch::RankScattered(const Reader& reader, const RowsView::Walk& walk,
                                      size_t count, GoOn go_on) {
  count = std::min(count, rows_.size());
  const auto offer = [&](uint32_t v, uint32_t number, double score) {
    Keep(reader, walk, v, {rows_[number], stripes_[number], score});
  };
  HOTBED_RETURN_IF_ERROR(RankSome(count, offer, go_on));
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<int64_t>(count));
  stripes_.erase(stripes_.begin(), stripes_.begin() + static_cast<int64_t>(count));
  return absl::OkStatus();
}

void RowSearch::Keep(const Reader& reader, const RowsView::Walk& walk, size_t vector,
                     const Met& met) {
  std::vector<Met>& all = met_[vector];
  all.push_back(met);
  if (!late_) return Settle(reader, walk, vector);
  if (all.size() < 2 * size_t{query_.k} + kMetRows) return;
  Prune(vector);
  // Rows that are all as near are put in the order of their ids.
  if (all.size() > size_t{query_.k} + kMetRows / 2) Settle(reader, walk, vector);
}

void RowSearch::Prune(size_t vector) {
  std::vector<Met>& all = met_[vector];
  const auto last = all.begin() + query_.k - 1;
  std::nth_element(all.begin(), last, all.end(),
                   [this](const Met& a, const Met& b) { return Nearer(a.score, b.score); });
  const double floor = last->score;
  if (!Nearer(floors_[vector], floor)) floors_[vector] = floor;
  all.erase(
      std::remove_if(last, all.end(), [&](const Met& met) { return Nearer(floor, met.score); }),
      all.end());
}

// A row that has changed since the walk began counts as it was then where it may have displaced
// others, which are not met with again; else as it is now.
void RowSearch::Settle(const Reader& reader, const RowsView::Walk& walk, size_t vector) {
  for (const Met& met : met_[vector]) {
    int told = 0;
    reader.Identify(walk, met.stripe, met.row, [&](uint64_t id, const uint8_t* now) {
      ++told;
      Offer(vector, id, late_ || now == met.row ? met.score : ScoreOf(vector, now));
    });
    lost_ = lost_ || told != 1;
  }
  met_[vector].clear();
}

absl::Status RowSearch::RankPart(bool whole, uint32_t part, GoOn go_on) {
  const Reader reader(view_);
  RowsView::Walk walk;
  reader.Begin(whole, part, &walk);
  rows_.clear();
  stripes_.clear();
  lost_ = false;
  const uint64_t stride = view_.latest->row_stride();
  const uint32_t ahead = RankAheadRows(view_.coder().row_bytes());
  for (ServedRows::Run run; !dropped_ && reader.Next(&walk, rows_max_, &run);) {
    if (run.count >= std::min(kRunRowsMin, rows_max_)) {
      HOTBED_RETURN_IF_ERROR(RankRun(reader, walk, run, go_on));
      continue;
    }
    for (uint32_t r = 0; r < run.count; ++r) {
      rows_.push_back(run.rows + stride * r);
      stripes_.push_back(reader.StripeOf(walk, run, rows_.back()));
    }
    // Rows of the next step are there already, so that they are fetched ahead in this one.
    if (rows_.size() < rows_max_ + ahead) continue;
    HOTBED_RETURN_IF_ERROR(RankScattered(reader, walk, rows_max_, go_on));
  }
  while (!rows_.empty() && !dropped_) {
    HOTBED_RETURN_IF_ERROR(RankScattered(reader, walk, rows_max_, go_on));
  }
  for (size_t v = 0; v < tops_.size(); ++v) {
    if (met_[v].size() > query_.k) Prune(v);
    Settle(reader, walk, v);
  }
  std::fill(floors_.begin(), floors_.end(), kNoFloor);
  return absl::OkStatus();
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
  const bool whole = tops_.size() <= kWholeVectorsMax && view_.latest->rows() <= kWholeRowsMax;
  for (uint32_t part = 0; part < view_.parts(whole) && !dropped_; ++part) {
    HOTBED_RETURN_IF_ERROR(RankPart(whole, part, go_on));
    if (!late_ || !lost_) continue;
    // A row that had displaced others is gone.
    late_ = false;
    HOTBED_RETURN_IF_ERROR(RankPart(whole, part, go_on));
    late_ = true;
  }
  return absl::OkStatus();
}

std::vector<std::vector<ScoredRow>> RowSearch::Take() {
  std::vector<std::vector<ScoredRow>> rows;
  for (TopRows& top : tops_) rows.push_back(top.Take());
  return rows;
}

}  // namespace hotbed
