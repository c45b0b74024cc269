// Embeddings::Backward, Gradients and WeightGradients: turns gradients of outputs into gradients of
// rows and of weights.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch/gradient_sum.h"
#include "client/composed/composed_calls.h"
#include "client/embedding/embeddings_impl.h"
#include "client/embedding/weight_gradients.h"
#include "client/push/push_engine.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status WrongSize(absl::string_view what, uint64_t size, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " elements, it needs ", allowed, "; nothing was sent"));
}

struct WeightWork {
  std::vector<BoundFeature> bound;
  std::vector<std::vector<float>> rows;    // by feature: one row per id
  std::vector<std::vector<float>> shared;  // by feature, of variable batches
};

}  // namespace

absl::Status EmbeddingsImpl::CheckGradients(absl::Span<const BoundFeature> bound,
                                            uint32_t batch_size, const EmbeddingOutput& output,
                                            const OutputGradients& gradients) const {
  const uint64_t columns = columns_.back();
  if (output.batch_size != batch_size || output.features.size() != features_.size() ||
      output.columns != columns || output.arg_max.size() != features_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("output is of ", output.batch_size, " samples, ", output.features.size(),
                     " features and ", output.columns, " columns; Forward of this batch makes ",
                     batch_size, ", ", features_.size(), " and ", columns, "; nothing was sent"));
  }
  if (gradients.values.size() != batch_size * columns) {
    return WrongSize("OutputGradients::values", gradients.values.size(),
                     absl::StrCat(batch_size, " samples x ", columns, " columns"));
  }
  for (size_t f = 0; f < bound.size(); ++f) {
    const uint64_t dim = bound[f].dim();
    const uint64_t bags = bound[f].lengths.size();
    if (features_[f].pooling == Pooling::kMax && output.arg_max[f].size() != bags * dim) {
      return WrongSize(absl::StrCat("output.arg_max of \"", features_[f].output, "\""),
                       output.arg_max[f].size(), absl::StrCat(bags, " bags x ", dim));
    }
    const uint64_t given = f < gradients.sequences.size() ? gradients.sequences[f].size() : 0;
    const uint64_t needed = bound[f].pooled() ? 0 : bound[f].ids.size() * dim;
    if (given != needed) {
      return WrongSize(
          absl::StrCat("OutputGradients::sequences[", f, "] (\"", features_[f].output, "\")"),
          given,
          bound[f].pooled() ? "none: the feature is pooled"
                            : absl::StrCat(bound[f].ids.size(), " ids x ", dim));
    }
  }
  if (gradients.sequences.size() <= features_.size()) return absl::OkStatus();
  return WrongSize("OutputGradients::sequences", gradients.sequences.size(),
                   absl::StrCat("at most ", features_.size(), ", one a feature"));
}

EmbeddingsImpl::BagGradients EmbeddingsImpl::BagGradientsOf(size_t feature,
                                                            const BoundFeature& bound,
                                                            absl::Span<const float> values,
                                                            std::vector<float>* shared) const {
  const float* row = values.data() + columns_[feature];
  if (bound.inverse.empty()) return {row, columns_.back()};
  const uint64_t dim = bound.dim();
  shared->assign(bound.lengths.size() * dim, 0.0f);
  for (const uint32_t bag : bound.inverse) {
    float* const sum = shared->data() + bag * dim;
    for (uint64_t d = 0; d < dim; ++d) sum[d] += row[d];
    row += columns_.back();
  }
  return {shared->data(), dim};
}

absl::Status EmbeddingsImpl::DescribePush(const JaggedBatch& batch, const EmbeddingOutput& output,
                                          const OutputGradients& gradients,
                                          BackwardScratch* scratch) const {
  HOTBED_RETURN_IF_ERROR(BindBatch(features_, batch, &scratch->bound));
  HOTBED_RETURN_IF_ERROR(CheckGradients(scratch->bound, batch.batch_size, output, gradients));
  scratch->bags.resize(features_.size());
  scratch->shared.resize(features_.size());
  scratch->features.clear();
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch->bound[f];
    PushFeature push;
    push.table = features_[f].table;
    push.ids = bound.ids;
    BagGradient& bags = scratch->bags[f];
    bags.coefficients.clear();
    if (bound.pooled()) DescribeBags(bound, &bags);
    if (features_[f].scale_by_frequency) {
      ScaleByFrequency(bound, &scratch->deduper, &scratch->unique, &bags.coefficients);
    }
    if (!bags.coefficients.empty()) push.coefficients = bags.coefficients.data();
    if (bound.pooled()) {
      const BagGradients from = BagGradientsOf(f, bound, gradients.values, &scratch->shared[f]);
      push.gradients = from.rows;
      push.gradient_rows = bags.rows.data();
      push.gradient_row_count = bound.lengths.size();
      push.gradient_stride = from.stride;
      if (features_[f].pooling == Pooling::kMax) {
        push.arg_max = output.arg_max[f].data();
        push.bag_positions = bags.positions.data();
      }
    } else if (f < gradients.sequences.size()) {
      push.gradients = gradients.sequences[f].data();
    }
    scratch->features.push_back(push);
  }
  return absl::OkStatus();
}

Future<PushResult> EmbeddingsImpl::Backward(uint64_t step, const JaggedBatch& batch,
                                            const EmbeddingOutput& output,
                                            const OutputGradients& gradients,
                                            const PushOptions& options) {
  std::unique_ptr<BackwardScratch> scratch = backward_.Take();
  absl::Status described = DescribePush(batch, output, gradients, scratch.get());
  Future<PushResult> future;
  if (described.ok()) {
    LookAhead* const ahead = options_.look_ahead;
    future = ahead != nullptr ? ahead->Push(step, scratch->features, options)
                              : client_->Push(step, scratch->features, options);
  } else {
    future = PushEngine::Refuse(step, std::move(described));
  }
  // Push has read the gradients when it returns.
  backward_.GiveBack(std::move(scratch));
  return future;
}

absl::Status EmbeddingsImpl::CheckSumsById() const {
  for (const EmbeddingFeature& feature : features_) {
    const ComposedHandle* const table = AsComposed(feature.table);
    const bool max = feature.pooling == Pooling::kMax;
    if (table == nullptr || SumsById(*table, max)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "feature \"", feature.feature, "\": gradients of composed table ", table->name(),
        max ? " with pooling max" : "",
        " cannot be kept by id, because it pools bags before it makes their rows; push each batch "
        "by itself, or create the table without pool_first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SparseGradient>> EmbeddingsImpl::Gradients(
    const JaggedBatch& batch, const EmbeddingOutput& output, const OutputGradients& gradients) {
  std::unique_ptr<BackwardScratch> scratch = backward_.Take();
  absl::Status described = CheckSumsById();
  if (described.ok()) described = DescribePush(batch, output, gradients, scratch.get());
  std::vector<SparseGradient> out;
  GradientSum sum(scratch->features, 1.0f, RowType::kFp32);
  TableGroup group;
  std::vector<IdsPart> parts;
  for (size_t t = 0; t < tables_.size() && described.ok(); ++t) {
    group.runs.clear();
    parts.clear();
    for (size_t f = 0; f < features_.size(); ++f) {
      const ResolvedIds& ids = scratch->bound[f].resolved;
      if (table_of_[f] != t || ids.ids.empty()) continue;
      const uint32_t begin = group.runs.empty() ? 0 : group.runs.back().end;
      group.runs.push_back(
          {static_cast<uint32_t>(f), begin, begin + static_cast<uint32_t>(ids.ids.size())});
      parts.push_back({ids.ids, ids.skip});
    }
    scratch->deduper.Run(parts, &group.ids);
    SparseGradient& gradient = out.emplace_back();
    gradient.table = tables_[t];
    gradient.ids = group.ids.unique;
    gradient.gradients.resize(group.ids.unique.size() * tables_[t]->dim());
    sum.SumAll(group, tables_[t]->dim(), gradient.gradients.data());
  }
  backward_.GiveBack(std::move(scratch));
  if (!described.ok()) return described;
  return out;
}

Future<absl::Status> EmbeddingsImpl::WeightGradients(const JaggedBatch& batch,
                                                     const OutputGradients& gradients,
                                                     std::vector<float>* weight_gradients) {
  auto work = std::make_unique<WeightWork>();
  absl::Status status = CheckSumsById();
  if (status.ok()) status = BindBatch(features_, batch, &work->bound);
  if (status.ok() && !batch.weighted() && !batch.ids.empty()) {
    status = absl::InvalidArgumentError("the batch has no weights, so there is no gradient");
  }
  const uint64_t needed = uint64_t{batch.batch_size} * columns_.back();
  if (status.ok() && gradients.values.size() != needed) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "OutputGradients::values has ", gradients.values.size(), " elements, it needs ", needed));
  }
  if (!status.ok()) return Future<absl::Status>::Ready(std::move(status));
  weight_gradients->assign(batch.ids.size(), 0.0f);
  work->rows.resize(features_.size());
  work->shared.resize(features_.size());
  std::vector<PullFeature> pulls;
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = work->bound[f];
    if (!bound.pooled() || bound.ids.empty()) continue;
    work->rows[f].resize(bound.ids.size() * uint64_t{bound.dim()});
    pulls.push_back({features_[f].table, bound.ids, work->rows[f].data()});
  }
  if (pulls.empty()) return Future<absl::Status>::Ready(absl::OkStatus());
  PullOptions options;
  options.deadline = options_.deadline;
  options.wire_type = options_.wire_type;
  const Future<absl::Status> pulled = client_->Pull(pulls, options);
  Promise<absl::Status> promise(pulled.driver());
  Future<absl::Status> future = promise.future();
  pulled.Then([this, &batch, values = gradients.values, weight_gradients, work = std::move(work),
               promise = std::move(promise)](const absl::Status& answer) mutable {
    for (size_t f = 0; answer.ok() && f < features_.size(); ++f) {
      const BoundFeature& bound = work->bound[f];
      if (work->rows[f].empty()) continue;
      const BagGradients from = BagGradientsOf(f, bound, values, &work->shared[f]);
      AddWeightGradients(bound, work->rows[f].data(), from.rows, from.stride,
                         weight_gradients->data() + (bound.ids.data() - batch.ids.data()));
    }
    promise.Set(answer);
  });
  return future;
}

}  // namespace hotbed
