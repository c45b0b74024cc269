// Embeddings::Backward and Gradients: turns gradients of outputs into gradients of rows.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch/gradient_sum.h"
#include "client/embedding/embeddings_impl.h"
#include "client/map/table_handle.h"
#include "client/push/push_engine.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status WrongSize(absl::string_view what, uint64_t size, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " elements, it needs ", allowed, "; nothing was sent"));
}

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
    if (features_[f].pooling == Pooling::kMax && output.arg_max[f].size() != batch_size * dim) {
      return WrongSize(absl::StrCat("output.arg_max of \"", features_[f].output, "\""),
                       output.arg_max[f].size(), absl::StrCat(batch_size, " samples x ", dim));
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

absl::Status EmbeddingsImpl::DescribePush(const JaggedBatch& batch, const EmbeddingOutput& output,
                                          const OutputGradients& gradients,
                                          BackwardScratch* scratch) const {
  HOTBED_RETURN_IF_ERROR(BindBatch(features_, batch, &scratch->bound));
  HOTBED_RETURN_IF_ERROR(CheckGradients(scratch->bound, batch.batch_size, output, gradients));
  scratch->bags.resize(features_.size());
  scratch->features.clear();
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch->bound[f];
    PushFeature push;
    push.table = features_[f].table;
    push.ids = bound.ids;
    if (bound.pooled()) {
      BagGradient& bags = scratch->bags[f];
      DescribeBags(bound, &bags);
      push.gradients = gradients.values.data() + columns_[f];
      push.gradient_rows = bags.rows.data();
      push.gradient_row_count = batch.batch_size;
      push.gradient_stride = columns_.back();
      if (!bags.coefficients.empty()) push.coefficients = bags.coefficients.data();
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
    future = client_->Push(step, scratch->features, options);
  } else {
    future = PushEngine::Refuse(step, std::move(described));
  }
  // Push has read the gradients when it returns.
  backward_.GiveBack(std::move(scratch));
  return future;
}

absl::StatusOr<std::vector<SparseGradient>> EmbeddingsImpl::Gradients(
    const JaggedBatch& batch, const EmbeddingOutput& output, const OutputGradients& gradients) {
  std::unique_ptr<BackwardScratch> scratch = backward_.Take();
  absl::Status described = DescribePush(batch, output, gradients, scratch.get());
  std::vector<SparseGradient> out;
  GradientSum sum(scratch->features, 1.0f, RowType::kFp32);
  TableGroup group;
  std::vector<IdsPart> parts;
  for (size_t t = 0; t < tables_.size() && described.ok(); ++t) {
    group.table = static_cast<const TableHandle*>(tables_[t]);
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
    sum.SumAll(group, gradient.gradients.data());
  }
  backward_.GiveBack(std::move(scratch));
  if (!described.ok()) return described;
  return out;
}

}  // namespace hotbed
