#include "client/embedding/embeddings_impl.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
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
  if (handle == nullptr || handle->owner() != dynamic_cast<const void*>(client)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": table ", feature.table->name(),
                     " was opened by another client; open it with this one"));
  }
  if (static_cast<int>(feature.pooling) > static_cast<int>(Pooling::kNone)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": pooling is ",
                                                   static_cast<int>(feature.pooling),
                                                   "; allowed: sum, mean, max, none (0..3)"));
  }
  return absl::OkStatus();
}

// Fills in the outputs' names.
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
  // The tables are this client's, so it is of the kind that makes such tables.
  auto* const impl = static_cast<ClientImpl*>(client);
  const RowType wire_type =
      options.wire_type != nullptr ? *options.wire_type : impl->options().pull_type;
  if (options.pooling_at == PoolingPlace::kServer && wire_type == RowType::kInt8) {
    return absl::InvalidArgumentError(
        "EmbeddingOptions::pooling_at is kServer and rows travel as int8; pooled sums travel as "
        "fp32, fp16 or bf16: set wire_type, or pool at the client");
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

}  // namespace hotbed
