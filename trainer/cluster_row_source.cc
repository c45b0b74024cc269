#include "trainer/cluster_row_source.h"

#include <utility>

#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<std::unique_ptr<RowSource>> ClusterRowSource::Open(
    const std::string& target, const ClientOptions& options,
    const std::vector<std::string>& tables) {
  auto source = std::make_unique<ClusterRowSource>();
  HOTBED_ASSIGN_OR_RETURN(source->client_, Client::Connect(target, options));
  for (const std::string& name : tables) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, source->client_->OpenTable(name));
    source->tables_.push_back(table);
  }
  return source;
}

std::vector<PullFeature> ClusterRowSource::PullFeatures(
    const std::vector<RowColumn>& columns) const {
  std::vector<PullFeature> features;
  features.reserve(columns.size());
  for (const RowColumn& column : columns) {
    features.push_back({.table = tables_[column.table], .ids = column.ids, .rows = column.rows});
  }
  return features;
}

Future<absl::Status> ClusterRowSource::Pull(const std::vector<RowColumn>& columns) {
  return client_->Pull(PullFeatures(columns));
}

Future<absl::Status> ClusterRowSource::Lookup(const std::vector<RowColumn>& columns) {
  return client_->Lookup(PullFeatures(columns));
}

Future<PushResult> ClusterRowSource::Push(uint64_t step, const std::vector<RowColumn>& columns,
                                          float learning_rate) {
  std::vector<PushFeature> features;
  features.reserve(columns.size());
  for (const RowColumn& column : columns) {
    features.push_back({tables_[column.table], column.ids, column.gradients});
  }
  PushOptions options;
  options.has_learning_rate = true;
  options.learning_rate = learning_rate;
  return client_->Push(step, features, options);
}

}  // namespace hotbed
