// Sparse gradients outside a push: sums over micro-batches, their norm, and PushGradients.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/batch/gradient_clip.h"
#include "client/push/push_engine.h"
#include "client/rows/row_sums.h"
#include "common/status_macros.h"
#include "hotbed/embedding.h"

namespace hotbed {
namespace {

absl::Status CheckGradient(absl::Span<const SparseGradient> gradients) {
  for (size_t g = 0; g < gradients.size(); ++g) {
    const SparseGradient& gradient = gradients[g];
    if (gradient.table == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("gradients[", g, "] names no table"));
    }
    const uint64_t needed = gradient.ids.size() * uint64_t{gradient.table->dim()};
    if (gradient.gradients.size() == needed) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("gradients[", g, "] of table ", gradient.table->name(), " has ",
                     gradient.gradients.size(), " floats for ", gradient.ids.size(), " ids of dim ",
                     gradient.table->dim(), "; ", needed, " are needed"));
  }
  return absl::OkStatus();
}

}  // namespace

struct GradientAccumulator::State {
  struct OfTable {
    SparseGradient sum;
    absl::flat_hash_map<uint64_t, size_t> index;  // of each id in sum.ids
  };
  std::vector<OfTable> tables;  // in the order of their first Add
  uint32_t added = 0;

  OfTable& Of(const Table* table) {
    for (OfTable& known : tables) {
      if (known.sum.table == table) return known;
    }
    OfTable& fresh = tables.emplace_back();
    fresh.sum.table = table;
    return fresh;
  }
};

GradientAccumulator::GradientAccumulator() : state_(std::make_unique<State>()) {}
GradientAccumulator::~GradientAccumulator() = default;

absl::Status GradientAccumulator::Add(absl::Span<const SparseGradient> gradients, float scale) {
  HOTBED_RETURN_IF_ERROR(CheckGradient(gradients));
  if (!std::isfinite(scale)) {
    return absl::InvalidArgumentError(absl::StrCat("scale is ", scale, "; it must be finite"));
  }
  const RowSums& sums = BestRowSums();
  for (const SparseGradient& gradient : gradients) {
    State::OfTable& of = state_->Of(gradient.table);
    const uint32_t dim = gradient.table->dim();
    std::vector<float> row(dim);
    for (size_t i = 0; i < gradient.ids.size(); ++i) {
      const float* const from = gradient.gradients.data() + i * dim;
      const auto [at, added] = of.index.emplace(gradient.ids[i], of.sum.ids.size());
      if (added) {
        of.sum.ids.push_back(gradient.ids[i]);
        of.sum.gradients.resize(of.sum.gradients.size() + dim);
        sums.scale(from, scale, dim, of.sum.gradients.data() + at->second * dim);
        continue;
      }
      float* const to = of.sum.gradients.data() + at->second * dim;
      const float* const two[2] = {to, from};
      const float coefficients[2] = {1.0f, scale};
      sums.sum(two, coefficients, 2, dim, row.data());
      std::copy(row.begin(), row.end(), to);
    }
  }
  ++state_->added;
  return absl::OkStatus();
}

std::vector<SparseGradient> GradientAccumulator::Take() {
  std::vector<SparseGradient> taken;
  for (State::OfTable& of : state_->tables) taken.push_back(std::move(of.sum));
  *state_ = State();
  return taken;
}

uint32_t GradientAccumulator::added() const { return state_->added; }

Future<PushResult> PushGradients(Client* client, uint64_t step,
                                 absl::Span<const SparseGradient> gradients,
                                 const PushOptions& options) {
  absl::Status checked = CheckGradient(gradients);
  if (!checked.ok()) return PushEngine::Refuse(step, std::move(checked));
  std::vector<PushFeature> features;
  for (const SparseGradient& gradient : gradients) {
    features.push_back({gradient.table, gradient.ids, gradient.gradients.data()});
  }
  return client->Push(step, features, options);
}

double GlobalNorm(absl::Span<const SparseGradient> gradients) {
  double squares = 0;
  for (const SparseGradient& gradient : gradients) {
    const uint32_t dim = gradient.table->dim();
    squares += SquaresOfRows(gradient.gradients.data(), gradient.ids.size(), dim, 0, dim);
  }
  return std::sqrt(squares);
}

}  // namespace hotbed
