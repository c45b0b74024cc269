// The dumb twin of Embeddings: id by id, in double precision, from rows in a map.
#ifndef HOTBED_TESTS_CLIENT_EMBEDDING_TWIN_H_
#define HOTBED_TESTS_CLIENT_EMBEDDING_TWIN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/tables/table_spec.h"
#include "hotbed/embedding.h"

namespace hotbed {

using TwinRow = std::vector<double>;

// How a table resolves an id: the row's id, or nothing; and whether the id counts in a mean.
struct TwinId {
  std::optional<uint64_t> row;
  bool counts = true;
  bool zeroed = false;
};

inline TwinId ResolveTwin(const TableSpec& table, uint64_t id) {
  if (table.has_padding_id && id == table.padding_id) return {std::nullopt, false, false};
  if (table.hashed || id < table.rows) return {id, true, false};
  if (table.bounds_mode == BoundsMode::kZero) return {std::nullopt, true, true};
  const auto rows = static_cast<int64_t>(table.rows);
  const auto wrapped = static_cast<uint64_t>((static_cast<int64_t>(id) % rows + rows) % rows);
  if (table.has_padding_id && wrapped == table.padding_id) return {std::nullopt, false, false};
  return {wrapped, true, false};
}

// Calls bag(sample, first position in the feature's ids, ids, weights) for each bag of a feature.
inline void ForEachBag(const JaggedBatch& batch, const std::string& key,
                       const std::function<void(uint32_t, uint64_t, const std::vector<uint64_t>&,
                                                const std::vector<double>&)>& bag) {
  const size_t k = static_cast<size_t>(std::find(batch.keys.begin(), batch.keys.end(), key) -
                                       batch.keys.begin());
  uint64_t at = 0;
  for (size_t i = 0; i < k * batch.batch_size; ++i) at += batch.lengths[i];
  const uint64_t key_begin = at;
  for (uint32_t s = 0; s < batch.batch_size; ++s) {
    std::vector<uint64_t> ids;
    std::vector<double> weights;
    const uint64_t first = at;
    for (uint32_t n = 0; n < batch.lengths[k * batch.batch_size + s]; ++n, ++at) {
      ids.push_back(batch.ids[at]);
      weights.push_back(batch.weights.empty() ? 1.0 : batch.weights[at]);
    }
    bag(s, first - key_begin, ids, weights);
  }
}

// The present row of an id of `table`.
using RowReader = std::function<TwinRow(const Table* table, uint64_t id)>;

// The largest error of a sum in fp32: each step rounds by half a unit of the sum so far.
inline double RoundingOf(double magnitudes, uint64_t terms) {
  return magnitudes * static_cast<double>(terms + 4) * 0x1p-24;
}

struct TwinOutput {
  std::vector<double> values;
  std::vector<double> rounding;   // of each value
  std::vector<double> sequence;   // kNone
  std::vector<uint32_t> arg_max;  // kMax: bags x dim
  uint64_t zeroed = 0;
};

inline double TwinDivisor(const EmbeddingFeature& feature, const std::vector<uint64_t>& ids,
                          const std::vector<double>& weights) {
  double divisor = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ResolveTwin(feature.table->options(), ids[i]).counts) divisor += weights[i];
  }
  return feature.pooling == Pooling::kMean ? divisor : 1.0;
}

// One feature; `values` is samples x dim.
inline TwinOutput ForwardTwin(const EmbeddingFeature& feature, const JaggedBatch& batch,
                              const RowReader& row_of) {
  TwinOutput out;
  const uint32_t dim = feature.table->dim();
  ForEachBag(batch, feature.feature,
             [&](uint32_t, uint64_t, const std::vector<uint64_t>& ids,
                 const std::vector<double>& weights) {
               TwinRow pooled(dim), magnitudes(dim);
               std::vector<uint32_t> arg(dim, 0xffffffffu);
               const double divisor = TwinDivisor(feature, ids, weights);
               for (size_t i = 0; i < ids.size(); ++i) {
                 const TwinId id = ResolveTwin(feature.table->options(), ids[i]);
                 out.zeroed += id.zeroed ? 1 : 0;
                 const TwinRow row =
                     id.row.has_value() ? row_of(feature.table, *id.row) : TwinRow(dim);
                 out.sequence.insert(out.sequence.end(), row.begin(), row.end());
                 if (!id.row.has_value() || divisor == 0) continue;
                 for (uint32_t d = 0; d < dim; ++d) {
                   if (feature.pooling == Pooling::kMax) {
                     if (arg[d] != 0xffffffffu && row[d] <= pooled[d]) continue;
                     arg[d] = static_cast<uint32_t>(i);
                     pooled[d] = row[d];
                   } else {
                     pooled[d] += weights[i] * row[d] / divisor;
                     magnitudes[d] += std::fabs(weights[i] * row[d] / divisor);
                   }
                 }
               }
               for (double m : magnitudes) out.rounding.push_back(RoundingOf(m, ids.size()));
               out.values.insert(out.values.end(), pooled.begin(), pooled.end());
               out.arg_max.insert(out.arg_max.end(), arg.begin(), arg.end());
             });
  return out;
}

// Sums of gradients by table and id, and the ids in the order of first appearance.
struct TwinGradient {
  std::vector<uint64_t> order;
  std::map<uint64_t, TwinRow> sums;
  std::map<uint64_t, TwinRow> magnitudes;
  std::map<uint64_t, uint64_t> terms;
};
using TwinGradients = std::map<const Table*, TwinGradient>;

// `gradient(sample, position in the feature, d)`: of the output.
inline void BackwardTwin(const EmbeddingFeature& feature, const JaggedBatch& batch,
                         const std::vector<uint32_t>& arg_max,
                         const std::function<double(uint32_t, uint64_t, uint32_t)>& gradient,
                         TwinGradients* out) {
  const uint32_t dim = feature.table->dim();
  TwinGradient& of = (*out)[feature.table];
  std::map<uint64_t, double> times;
  ForEachBag(batch, feature.feature,
             [&](uint32_t, uint64_t, const std::vector<uint64_t>& ids, const std::vector<double>&) {
               for (uint64_t id : ids) {
                 const TwinId resolved = ResolveTwin(feature.table->options(), id);
                 if (resolved.row.has_value()) ++times[*resolved.row];
               }
             });
  ForEachBag(batch, feature.feature,
             [&](uint32_t sample, uint64_t first, const std::vector<uint64_t>& ids,
                 const std::vector<double>& weights) {
               const double divisor = TwinDivisor(feature, ids, weights);
               for (size_t i = 0; i < ids.size(); ++i) {
                 const TwinId id = ResolveTwin(feature.table->options(), ids[i]);
                 if (!id.row.has_value()) continue;
                 const auto [sum, added] = of.sums.emplace(*id.row, TwinRow(dim));
                 if (added) of.order.push_back(*id.row);
                 ++of.terms[*id.row];
                 for (uint32_t d = 0; d < dim; ++d) {
                   double g = gradient(sample, first + i, d);
                   if (feature.pooling == Pooling::kMax) {
                     g = arg_max[uint64_t{sample} * dim + d] == i ? g : 0.0;
                   } else if (feature.pooling != Pooling::kNone) {
                     g = divisor == 0 ? 0.0 : g * weights[i] / divisor;
                   }
                   if (feature.scale_by_frequency) g /= times.at(*id.row);
                   sum->second[d] += g;
                   of.magnitudes[*id.row].resize(dim);
                   of.magnitudes[*id.row][d] += std::fabs(g);
                 }
               }
             });
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLIENT_EMBEDDING_TWIN_H_
