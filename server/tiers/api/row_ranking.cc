#include "server/tiers/api/row_ranking.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "row_math/nearness.h"
#include "row_math/position.h"
#include "server/kernels/cpu_kernels.h"

namespace hotbed {
namespace {

constexpr uint32_t kPicksMax = 256;  // rows that a kernel looks at in one call
// Elements that are compared in one step: 512 KiB of fp32.
constexpr uint64_t kStepElements = 128 << 10;
constexpr uint32_t kStepRowsMin = 8;
// Scores that are compared in one step: each may enter the best k, in about 0.4 us.
constexpr uint64_t kStepScores = 4096;
// Many vectors are compared with rows that are still in the cache.
constexpr uint64_t kCachedBytes = 16 << 10;

uint32_t RowsPerStep(size_t vectors, uint32_t dim) {
  const uint64_t many = std::max<uint64_t>(1, vectors);
  const uint64_t rows = std::min(kStepElements / (many * dim), kStepScores / many);
  return static_cast<uint32_t>(std::max<uint64_t>(rows, kStepRowsMin));
}

// As a row of the same elements has it.
double NormOf(absl::Span<const float> vector, const double* wide) {
  double square = 0;
  Nearness<Fp32Codec, RowMetric::kDot, 1>({reinterpret_cast<const uint8_t*>(vector.data())}, wide,
                                          static_cast<uint32_t>(vector.size()), 0, &square);
  return std::sqrt(square);
}

}  // namespace

RowRanking::RowRanking(const RankQuery& query, WeightType weight_type, uint32_t dim, bool hashed)
    : metric_(query.metric),
      weight_type_(weight_type),
      dim_(dim),
      hashed_(hashed),
      first_id_(query.first_id),
      last_id_(query.last_id),
      vectors_(query.vectors.size() / dim, dim),
      floats_(query.vectors.size() / dim, dim) {
  const size_t count = query.vectors.size() / dim;
  rows_per_step_ = RowsPerStep(count, dim);
  for (size_t v = 0; v < count; ++v) {
    const absl::Span<const float> vector = query.vectors.subspan(v * dim, dim);
    double* const wide = vectors_[v];
    std::copy(vector.begin(), vector.end(), wide);
    norms_.push_back(NormOf(vector, wide));
    quick_.push_back(MakeFloatQuery(vector.data(), dim, floats_[v]));
    tops_.emplace_back(query.k, SmallerIsNearer(query.metric));
  }
}

template <typename Picked>
void RowRanking::Rank(const StoredRun& run, PositionOf position_of, Picked picked) {
  const CpuKernelSet& kernels = CpuKernels();
  uint32_t picks[kPicksMax];
  double scores[kPicksMax];
  const uint32_t rows_max =
      tops_.size() == 1
          ? kPicksMax
          : static_cast<uint32_t>(std::clamp<uint64_t>(kCachedBytes / run.stride, 1, kPicksMax));
  RankBatch batch;
  batch.stride = run.stride;
  batch.dim = dim_;
  batch.weight_type = weight_type_;
  batch.metric = metric_;
  batch.picks = picks;
  batch.scores = scores;
  for (uint32_t first = 0; first < run.count; first += batch.count) {
    batch.rows = run.weights + run.stride * first;
    batch.count = std::min(rows_max, run.count - first);
    for (size_t v = 0; v < tops_.size(); ++v) {
      batch.vector = vectors_[v];
      batch.norm = norms_[v];
      batch.quick_floats = &quick_[v];
      batch.floor = tops_[v].floor();
      kernels.rank_rows(&batch);
      for (uint32_t p = 0; p < batch.picked; ++p) {
        const uint32_t row = first + picks[p];
        uint64_t position = 0;
        if (!position_of(row, &position)) continue;
        const uint64_t id = hashed_ ? Unmix64(position) : position;
        if (WantsId(id)) picked(v, row, ScoredRow{id, scores[p]});
      }
    }
  }
  rows_read_ += run.count;
}

void RowRanking::Offer(const StoredRun& run, PositionOf position_of) {
  Rank(run, position_of, [this](size_t v, uint32_t, const ScoredRow& row) { tops_[v].Offer(row); });
}

std::vector<uint32_t> RowRanking::Wanted(const StoredRun& run, PositionOf position_of) {
  std::vector<uint32_t> wanted;
  Rank(run, position_of, [&](size_t v, uint32_t number, const ScoredRow& row) {
    if (tops_[v].Wants(row)) wanted.push_back(number);
  });
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return wanted;
}

std::vector<std::vector<ScoredRow>> RowRanking::Take() {
  std::vector<std::vector<ScoredRow>> rows;
  for (TopRows& top : tops_) rows.push_back(top.Take());
  return rows;
}

}  // namespace hotbed
