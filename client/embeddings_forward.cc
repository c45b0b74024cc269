// Embeddings::Forward: one pull of the distinct rows of all tables, then pooling.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/embedding_pool.h"
#include "client/embeddings_impl.h"

namespace hotbed {
namespace {

absl::Status CheckIdCount(absl::Span<const BoundFeature> bound) {
  uint64_t ids = 0;
  for (const BoundFeature& feature : bound) ids += feature.ids.size();
  if (ids <= kIdsPerCallMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ids, " ids over all features, the limit is ",
                                                 kIdsPerCallMax, "; take fewer samples at once"));
}

}  // namespace

Future<absl::Status> EmbeddingsImpl::Forward(const JaggedBatch& batch, EmbeddingOutput* output) {
  std::unique_ptr<ForwardScratch> scratch = forward_.Take();
  absl::Status status = BindBatch(features_, batch, &scratch->bound);
  if (status.ok()) status = CheckIdCount(scratch->bound);
  if (!status.ok()) {
    forward_.GiveBack(std::move(scratch));
    return Future<absl::Status>::Ready(std::move(status));
  }
  ShapeOutput(scratch->bound, batch.batch_size, output);
  PlanPulls(output, scratch.get());
  PullOptions options;
  options.deadline = options_.deadline;
  options.wire_type = options_.wire_type;
  const Future<absl::Status> pulled = client_->Pull(scratch->pulls, options);
  Promise<absl::Status> promise(pulled.driver());
  Future<absl::Status> future = promise.future();
  pulled.Then([this, output, scratch = std::move(scratch),
               promise = std::move(promise)](const absl::Status& answer) mutable {
    if (answer.ok()) PoolOutput(*scratch, output);
    forward_.GiveBack(std::move(scratch));
    promise.Set(answer);
  });
  return future;
}

void EmbeddingsImpl::ShapeOutput(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                                 EmbeddingOutput* output) const {
  output->batch_size = batch_size;
  output->columns = columns_.back();
  output->values.resize(uint64_t{batch_size} * output->columns);
  output->features.resize(bound.size());
  output->arg_max.resize(bound.size());
  output->out_of_bounds = 0;
  for (size_t f = 0; f < bound.size(); ++f) {
    EmbeddingOutput::Feature& feature = output->features[f];
    const uint64_t dim = bound[f].dim();
    feature.name = features_[f].output;
    feature.dim = static_cast<uint32_t>(dim);
    feature.pooling = features_[f].pooling;
    feature.column = bound[f].pooled() ? columns_[f] : 0;
    feature.sequence.resize(bound[f].pooled() ? 0 : bound[f].ids.size() * dim);
    feature.lengths.clear();
    if (!bound[f].pooled()) {
      feature.lengths.assign(bound[f].lengths.begin(), bound[f].lengths.end());
    }
    output->arg_max[f].resize(feature.pooling == Pooling::kMax ? batch_size * dim : 0);
    output->out_of_bounds += bound[f].resolved.zeroed;
  }
}

void EmbeddingsImpl::PlanPulls(EmbeddingOutput* output, ForwardScratch* scratch) const {
  scratch->pulls.clear();
  scratch->tables.resize(tables_.size());
  scratch->first_input.assign(features_.size(), 0);
  for (size_t t = 0; t < tables_.size(); ++t) {
    ForwardScratch::TableRows& table = scratch->tables[t];
    uint64_t inputs = 0;
    scratch->parts.clear();
    for (size_t f = 0; f < features_.size(); ++f) {
      const BoundFeature& bound = scratch->bound[f];
      if (table_of_[f] != t) continue;
      if (!bound.pooled()) {
        // A sequence's rows go to their places straight from the answer.
        scratch->pulls.push_back({tables_[t], bound.ids, output->features[f].sequence.data()});
        continue;
      }
      scratch->first_input[f] = inputs;
      scratch->parts.push_back({bound.resolved.ids, bound.resolved.skip});
      inputs += bound.ids.size();
      if (counters_ != nullptr) {
        ClientCounters::Add(&counters_->ids_zeroed, bound.resolved.zeroed);
      }
    }
    if (scratch->parts.empty()) continue;
    if (table.index.size() < inputs) table.index.resize(inputs);
    scratch->deduper.RunIndexed(scratch->parts, &table.ids, table.index.data());
    const uint64_t floats = table.ids.size() * tables_[t]->dim();
    if (table.capacity < floats) {
      table.rows.reset(new float[floats]);
      table.capacity = floats;
    }
    PullFeature pull{tables_[t], table.ids, table.rows.get()};
    pull.distinct = true;
    scratch->pulls.push_back(pull);
    if (counters_ != nullptr) {
      ClientCounters::Add(&counters_->ids_asked, inputs - table.ids.size());
    }
  }
}

void EmbeddingsImpl::PoolOutput(const ForwardScratch& scratch, EmbeddingOutput* output) const {
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch.bound[f];
    if (!bound.pooled()) continue;
    const ForwardScratch::TableRows& table = scratch.tables[table_of_[f]];
    PoolBags(bound, {table.rows.get(), table.index.data() + scratch.first_input[f]},
             output->values.data() + columns_[f], output->columns, output->arg_max[f].data());
  }
}

}  // namespace hotbed
