#include "client/embedding/embedding_batch.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/embedding/jagged_batch.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status OutOfBounds(const BoundFeature& bound, const JaggedBatch& batch, uint64_t first,
                         size_t at) {
  const TableOptions& table = bound.feature->table->options();
  return absl::OutOfRangeError(absl::StrCat(
      "feature \"", bound.feature->feature, "\": id ", bound.ids[at], " at position ", at,
      " (sample ", PlaceOfId(batch, first + at).sample, ") is outside of table ", table.name,
      "'s 0..", table.rows - 1,
      "; bring ids into range, or use a table of bounds_mode zero or modulo; nothing was sent"));
}

absl::Status CheckWeights(const BoundFeature& bound) {
  const Pooling pooling = bound.feature->pooling;
  if (bound.weights == nullptr || bound.ids.empty()) return absl::OkStatus();
  if (pooling == Pooling::kSum || pooling == Pooling::kMean) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "feature \"", bound.feature->feature, "\" has a weight at position 0 and pooling ",
      pooling == Pooling::kMax ? "max" : "none",
      "; weights go with sum and mean: Split the batch, or leave them out; nothing was sent"));
}

// A sequence has one row per id of a sample, so that nothing is shared.
absl::Status CheckShared(const BoundFeature& bound) {
  if (bound.inverse.empty() || bound.pooled()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "feature \"", bound.feature->feature,
      "\" has pooling none and a variable batch; Expand the batch first; nothing was sent"));
}

}  // namespace

float BoundFeature::Divisor(uint64_t begin, uint64_t end) const {
  double divisor = 0;
  for (uint64_t i = begin; i < end; ++i) {
    if (resolved.skip != nullptr && resolved.skip[i] == kIdPadding) continue;
    divisor += weights != nullptr ? weights[i] : 1.0;
  }
  return static_cast<float>(divisor);
}

absl::Status BindBatch(absl::Span<const EmbeddingFeature> features, const JaggedBatch& batch,
                       std::vector<BoundFeature>* bound) {
  HOTBED_RETURN_IF_ERROR(batch.Validate());
  const std::vector<uint64_t> begins = batch.OffsetPerKey();
  std::vector<uint64_t> bags = {0};
  for (size_t k = 0; k < batch.keys.size(); ++k) bags.push_back(bags.back() + batch.BagsOf(k));
  bound->resize(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    BoundFeature& to = (*bound)[f];
    to.feature = &features[f];
    HOTBED_ASSIGN_OR_RETURN(const size_t key, batch.IndexOf(features[f].feature));
    const uint64_t count = begins[key + 1] - begins[key];
    to.lengths = absl::MakeConstSpan(batch.lengths).subspan(bags[key], batch.BagsOf(key));
    to.inverse = absl::MakeConstSpan(batch.inverse);
    if (batch.variable()) {
      to.inverse = to.inverse.subspan(key * size_t{batch.batch_size}, batch.batch_size);
    }
    HOTBED_RETURN_IF_ERROR(CheckShared(to));
    to.ids = absl::MakeConstSpan(batch.ids).subspan(begins[key], count);
    to.weights = batch.weighted() ? batch.weights.data() + begins[key] : nullptr;
    HOTBED_RETURN_IF_ERROR(CheckWeights(to));
    const size_t bad = ResolveIds(features[f].table->options(), to.ids, &to.resolved);
    if (bad != to.ids.size()) return OutOfBounds(to, batch, begins[key], bad);
  }
  return absl::OkStatus();
}

void DescribeBags(const BoundFeature& bound, BagGradient* out) {
  const Pooling pooling = bound.feature->pooling;
  const size_t ids = bound.ids.size();
  out->rows.resize(ids);
  out->positions.resize(pooling == Pooling::kMax ? ids : 0);
  const bool mean = pooling == Pooling::kMean;
  out->coefficients.resize(mean || bound.weights != nullptr ? ids : 0);
  uint64_t i = 0;
  for (uint32_t bag = 0; bag < bound.lengths.size(); ++bag) {
    const uint64_t begin = i;
    const uint64_t end = begin + bound.lengths[bag];
    const float divisor = mean ? bound.Divisor(begin, end) : 1.0f;
    for (; i < end; ++i) {
      out->rows[i] = bag;
      if (pooling == Pooling::kMax) out->positions[i] = static_cast<uint32_t>(i - begin);
      if (out->coefficients.empty()) continue;
      const float weight = bound.weights != nullptr ? bound.weights[i] : 1.0f;
      out->coefficients[i] = divisor != 0 ? weight / divisor : 0.0f;
    }
  }
}

void ScaleByFrequency(const BoundFeature& bound, Deduper* deduper, UniqueIds* scratch,
                      std::vector<float>* coefficients) {
  coefficients->resize(bound.ids.size(), 1.0f);
  deduper->Run({{bound.resolved.ids, bound.resolved.skip}}, scratch);
  const std::vector<uint32_t>& next = scratch->next;
  for (const uint32_t first : scratch->first) {
    uint32_t times = 0;
    for (uint32_t i = first; i != kNoIndex; i = next[i]) ++times;
    for (uint32_t i = first; times > 1 && i != kNoIndex; i = next[i]) {
      (*coefficients)[i] /= static_cast<float>(times);
    }
  }
}

}  // namespace hotbed
