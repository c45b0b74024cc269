#include "client/embedding/embeddings_impl.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/batch/pooling_place.h"
#include "client/client_impl.h"
#include "client/composed/composed_handle.h"
#include "client/embedding/embedding_pool.h"
#include "client/map/table_handle.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

std::string NameOf(size_t index, const EmbeddingFeature& feature) {
  return absl::StrCat("features[", index, "] (\"", feature.feature, "\")");
}

absl::Status CheckFeature(const Client* client, size_t index, const EmbeddingFeature& feature) {
  const std::string name = NameOf(index, feature);
  if (feature.feature.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " names no feature of a batch"));
  }
  if (feature.table == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, " names no table"));
  }
  const auto* const handle = dynamic_cast<const TableHandle*>(feature.table);
  const ComposedHandle* const composed = AsComposed(feature.table);
  const void* const owner = composed != nullptr ? composed->owner()
                            : handle != nullptr ? handle->owner()
                                                : nullptr;
  if (owner == nullptr || owner != dynamic_cast<const void*>(client)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": table ", feature.table->name(),
                     " was opened by another client; open it with this one"));
  }
  if (static_cast<int>(feature.pooling) > static_cast<int>(Pooling::kNone)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": pooling is ",
                                                   static_cast<int>(feature.pooling),
                                                   "; allowed: sum, mean, max, none (0..3)"));
  }
  if (composed != nullptr && feature.scale_by_frequency) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": scale_by_frequency is set, and table ", feature.table->name(),
                     " is composed: its ids share rows of its parts; leave it off"));
  }
  return absl::OkStatus();
}

// Sets the names of the outputs.
absl::Status NameOutputs(std::vector<EmbeddingFeature>* features) {
  absl::flat_hash_map<std::string, int> times;
  for (const EmbeddingFeature& feature : *features) ++times[feature.feature];
  absl::flat_hash_map<std::string, size_t> taken;
  for (size_t f = 0; f < features->size(); ++f) {
    EmbeddingFeature& feature = (*features)[f];
    if (feature.output.empty()) {
      feature.output = times[feature.feature] == 1
                           ? feature.feature
                           : absl::StrCat(feature.feature, "@", feature.table->name());
    }
    const auto [other, added] = taken.emplace(feature.output, f);
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(f, feature), ": output \"", feature.output, "\" is that of features[",
                       other->second, "] too; set EmbeddingFeature::output"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIdCount(absl::Span<const BoundFeature> bound) {
  uint64_t ids = 0;
  for (const BoundFeature& feature : bound) ids += feature.ids.size();
  if (ids <= kIdsPerCallMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ids, " ids over all features, the limit is ",
                                                 kIdsPerCallMax, "; take fewer samples at once"));
}

}  // namespace

const EmbeddingOutput::Feature* EmbeddingOutput::Find(const std::string& name) const {
  for (const Feature& feature : features) {
    if (feature.name == name) return &feature;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Embeddings>> Embeddings::Create(
    Client* client, std::vector<EmbeddingFeature> features, const EmbeddingOptions& options) {
  if (client == nullptr) return absl::InvalidArgumentError("Embeddings over no client");
  if (features.empty()) {
    return absl::InvalidArgumentError("Embeddings of no features; name at least one");
  }
  for (size_t f = 0; f < features.size(); ++f) {
    HOTBED_RETURN_IF_ERROR(CheckFeature(client, f, features[f]));
  }
  HOTBED_RETURN_IF_ERROR(NameOutputs(&features));
  // CheckFeature found that the tables are TableHandles of this client, so the client is a
  // ClientImpl.
  auto* const impl = static_cast<ClientImpl*>(client);
  const RowType wire_type =
      options.wire_type != nullptr ? *options.wire_type : impl->options().pull_type;
  if (options.pooling_at == PoolingPlace::kServer && wire_type == RowType::kInt8) {
    return absl::InvalidArgumentError(
        "EmbeddingOptions::pooling_at is kServer and rows travel as int8; pooled sums travel as "
        "fp32, fp16 or bf16: set wire_type, or pool at the client");
  }
  if (options.pooling_at == PoolingPlace::kServer && options.look_ahead != nullptr) {
    return absl::InvalidArgumentError(
        "EmbeddingOptions::pooling_at is kServer and look_ahead is set; rows that are read ahead "
        "are pooled in the client: leave pooling_at, or look_ahead, at its default");
  }
  for (const EmbeddingFeature& feature : features) {
    if (options.look_ahead == nullptr || AsComposed(feature.table) == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "EmbeddingOptions::look_ahead is set, and table ", feature.table->name(),
        " is composed, whose rows are not read ahead; leave look_ahead at its default"));
  }
  return std::make_unique<EmbeddingsImpl>(client, impl->counters(), wire_type, std::move(features),
                                          options);
}

EmbeddingsImpl::EmbeddingsImpl(Client* client, ClientCounters* counters, RowType wire_type,
                               std::vector<EmbeddingFeature> features,
                               const EmbeddingOptions& options)
    : client_(client),
      counters_(counters),
      wire_type_(wire_type),
      features_(std::move(features)),
      options_(options) {
  columns_.push_back(0);
  for (const EmbeddingFeature& feature : features_) {
    const uint32_t width = feature.pooling == Pooling::kNone ? 0 : feature.table->dim();
    columns_.push_back(columns_.back() + width);
    const auto found = std::find(tables_.begin(), tables_.end(), feature.table);
    table_of_.push_back(static_cast<size_t>(found - tables_.begin()));
    if (found == tables_.end()) tables_.push_back(feature.table);
  }
}

// --- forward

absl::Status EmbeddingsImpl::Bind(const JaggedBatch& batch,
                                  std::vector<BoundFeature>* bound) const {
  HOTBED_RETURN_IF_ERROR(BindBatch(features_, batch, bound));
  return CheckIdCount(*bound);
}

absl::Status EmbeddingsImpl::Announce(const JaggedBatch& batch) {
  if (options_.look_ahead == nullptr) {
    return absl::FailedPreconditionError(
        "a batch was announced to Embeddings without EmbeddingOptions::look_ahead; set it, or call "
        "Forward alone");
  }
  std::unique_ptr<ForwardScratch> scratch = forward_.Take();
  absl::Status status = Bind(batch, &scratch->bound);
  if (status.ok()) {
    EmbeddingOutput unused;
    unused.features.resize(features_.size());
    PlanPulls(&unused, scratch.get());
    std::vector<LookAheadFeature> features;
    for (const PullFeature& pull : scratch->pulls) features.push_back({pull.table, pull.ids});
    if (!features.empty()) status = options_.look_ahead->Announce(features);
  }
  forward_.GiveBack(std::move(scratch));
  return status;
}

absl::Status EmbeddingsImpl::TakeRows(const ForwardScratch& scratch) const {
  std::vector<absl::Span<float>> rows;
  for (const PullFeature& pull : scratch.pulls) {
    rows.emplace_back(static_cast<float*>(pull.rows), pull.ids.size() * pull.table->dim());
  }
  return options_.look_ahead->Take(rows);
}

Future<absl::Status> EmbeddingsImpl::Forward(const JaggedBatch& batch, EmbeddingOutput* output) {
  std::unique_ptr<ForwardScratch> scratch = forward_.Take();
  absl::Status status = Bind(batch, &scratch->bound);
  if (!status.ok()) {
    forward_.GiveBack(std::move(scratch));
    return Future<absl::Status>::Ready(std::move(status));
  }
  ShapeOutput(scratch->bound, batch.batch_size, output);
  PlanPulls(output, scratch.get());
  if (scratch->pulls.empty()) {  // no samples
    forward_.GiveBack(std::move(scratch));
    return Future<absl::Status>::Ready(absl::OkStatus());
  }
  if (options_.look_ahead != nullptr) {
    status = TakeRows(*scratch);
    if (status.ok()) PoolOutput(scratch.get(), output);
    forward_.GiveBack(std::move(scratch));
    return Future<absl::Status>::Ready(std::move(status));
  }
  PullOptions options;
  options.deadline = options_.deadline;
  options.wire_type = options_.wire_type;
  const Future<absl::Status> pulled = client_->Pull(scratch->pulls, options);
  Promise<absl::Status> promise(pulled.driver());
  Future<absl::Status> future = promise.future();
  pulled.Then([this, output, scratch = std::move(scratch),
               promise = std::move(promise)](const absl::Status& answer) mutable {
    if (answer.ok()) PoolOutput(scratch.get(), output);
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
    output->arg_max[f].resize(feature.pooling == Pooling::kMax ? bound[f].lengths.size() * dim : 0);
    output->out_of_bounds += bound[f].resolved.zeroed;
  }
}

uint64_t EmbeddingsImpl::FindRows(size_t table, ForwardScratch* scratch) const {
  ForwardScratch::TableRows& rows = scratch->tables[table];
  uint64_t inputs = 0;
  scratch->parts.clear();
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch->bound[f];
    if (table_of_[f] != table || !bound.pooled()) continue;
    scratch->first_input[f] = inputs;
    scratch->parts.push_back({bound.resolved.ids, bound.resolved.skip});
    inputs += bound.ids.size();
  }
  if (rows.index.size() < inputs) rows.index.resize(inputs);
  scratch->deduper.RunIndexed(scratch->parts, &rows.ids, rows.index.data());
  return inputs;
}

bool EmbeddingsImpl::PoolsOnServers(size_t table, const ForwardScratch& scratch) const {
  if (AsComposed(tables_[table]) != nullptr) return true;  // a pull of bags pools as it needs
  if (options_.look_ahead != nullptr) return false;
  if (options_.pooling_at != PoolingPlace::kAuto) {
    return options_.pooling_at == PoolingPlace::kServer;
  }
  if (wire_type_ == RowType::kInt8) return false;  // sums do not travel as int8
  const TableOptions& options = tables_[table]->options();
  PoolingWork work;
  work.dim = options.dim;
  work.slices = std::max<uint32_t>(options.column_slices, 1);
  work.ranges = std::max<uint32_t>(tables_[table]->shard_count() / work.slices, 1);
  work.distinct = scratch.tables[table].ids.size();
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch.bound[f];
    if (table_of_[f] != table || !bound.pooled()) continue;
    work.ids += bound.ids.size();
    if (bound.weights != nullptr) work.weights += bound.ids.size();
    work.AddBags(bound.lengths, features_[f].pooling == Pooling::kMax);
  }
  return BytesPooledOnServers(work, wire_type_) < BytesPooledHere(work, wire_type_);
}

EmbeddingsImpl::BagRows EmbeddingsImpl::BagRowsOf(size_t feature, ForwardScratch* scratch,
                                                  EmbeddingOutput* output) const {
  const BoundFeature& bound = scratch->bound[feature];
  if (bound.inverse.empty()) return {output->values.data() + columns_[feature], columns_.back()};
  std::vector<float>& shared = scratch->shared[feature];
  shared.resize(bound.lengths.size() * uint64_t{bound.dim()});
  return {shared.data(), bound.dim()};
}

PullFeature EmbeddingsImpl::PooledPull(size_t feature, ForwardScratch* scratch,
                                       EmbeddingOutput* output) const {
  const BoundFeature& bound = scratch->bound[feature];
  const BagRows to = BagRowsOf(feature, scratch, output);
  PullFeature pull{tables_[table_of_[feature]], bound.ids, to.rows};
  pull.bag_lengths = bound.lengths;
  pull.id_weights = bound.weights;
  pull.row_stride = to.stride;
  // A mean travels as a sum in any case; DivideBags divides it as PoolBags does.
  pull.pooling = features_[feature].pooling == Pooling::kMax ? BagPooling::kMax : BagPooling::kSum;
  if (pull.pooling == BagPooling::kMax) pull.arg_max = output->arg_max[feature].data();
  const bool whole_mean = AsComposed(pull.table) != nullptr;
  if (whole_mean && features_[feature].pooling == Pooling::kMean) pull.pooling = BagPooling::kMean;
  return pull;
}

void EmbeddingsImpl::PlanPulls(EmbeddingOutput* output, ForwardScratch* scratch) const {
  scratch->pulls.clear();
  scratch->tables.resize(tables_.size());
  scratch->on_servers.assign(tables_.size(), 0);
  scratch->first_input.assign(features_.size(), 0);
  scratch->shared.resize(features_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    ForwardScratch::TableRows& table = scratch->tables[t];
    const bool counts =
        options_.pooling_at != PoolingPlace::kServer && AsComposed(tables_[t]) == nullptr;
    const uint64_t inputs = counts ? FindRows(t, scratch) : 0;
    scratch->on_servers[t] = PoolsOnServers(t, *scratch) ? 1 : 0;
    bool rows_here = false;
    for (size_t f = 0; f < features_.size(); ++f) {
      const BoundFeature& bound = scratch->bound[f];
      if (table_of_[f] != t) continue;
      if (!bound.pooled()) {
        // The rows of a sequence are written to the output directly from the answer.
        scratch->pulls.push_back({tables_[t], bound.ids, output->features[f].sequence.data()});
      } else if (scratch->on_servers[t] != 0) {
        if (!bound.lengths.empty()) scratch->pulls.push_back(PooledPull(f, scratch, output));
      } else {
        rows_here = true;
        counters_->ids_zeroed += bound.resolved.zeroed;
      }
    }
    if (!rows_here) continue;
    const uint64_t floats = table.ids.size() * tables_[t]->dim();
    if (table.capacity < floats) {
      table.rows.reset(new float[floats]);
      table.capacity = floats;
    }
    PullFeature pull{tables_[t], table.ids, table.rows.get()};
    pull.distinct = true;
    scratch->pulls.push_back(pull);
    counters_->ids_asked += inputs - table.ids.size();
  }
}

void EmbeddingsImpl::PoolOutput(ForwardScratch* scratch, EmbeddingOutput* output) const {
  for (size_t f = 0; f < features_.size(); ++f) {
    const BoundFeature& bound = scratch->bound[f];
    if (!bound.pooled()) continue;
    const BagRows to = BagRowsOf(f, scratch, output);
    if (scratch->on_servers[table_of_[f]] != 0) {
      if (AsComposed(features_[f].table) == nullptr) DivideBags(bound, to.rows, to.stride);
    } else {
      const ForwardScratch::TableRows& table = scratch->tables[table_of_[f]];
      PoolBags(bound, {table.rows.get(), table.index.data() + scratch->first_input[f]}, to.rows,
               to.stride, output->arg_max[f].data());
    }
    float* out = output->values.data() + columns_[f];
    for (const uint32_t bag : bound.inverse) {
      std::copy_n(to.rows + bag * to.stride, bound.dim(), out);
      out += columns_.back();
    }
  }
}

}  // namespace hotbed
