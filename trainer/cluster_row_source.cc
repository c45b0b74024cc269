#include "trainer/cluster_row_source.h"

#include <utility>

#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<std::unique_ptr<RowSource>> ClusterRowSource::Open(
    const std::string& target, const ClientOptions& options, const std::vector<std::string>& tables,
    const std::optional<LookAheadOptions>& fresh_rows) {
  auto source = std::make_unique<ClusterRowSource>();
  HOTBED_ASSIGN_OR_RETURN(source->client_, Client::Connect(target, options));
  for (const std::string& name : tables) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, source->client_->OpenTable(name));
    source->tables_.push_back(table);
  }
  if (fresh_rows.has_value()) {
    HOTBED_ASSIGN_OR_RETURN(source->ahead_, LookAhead::Create(source->client_.get(), *fresh_rows));
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
  if (ahead_ == nullptr) return client_->Pull(PullFeatures(columns));
  std::vector<LookAheadFeature> features;
  for (const RowColumn& column : columns) features.push_back({tables_[column.table], column.ids});
  return Future<absl::Status>::Ready(ahead_->Announce(features));
}

absl::Status ClusterRowSource::Take(const std::vector<RowColumn>& columns) {
  if (ahead_ == nullptr) return absl::OkStatus();
  std::vector<absl::Span<float>> rows;
  for (const RowColumn& column : columns) {
    rows.emplace_back(column.rows, column.ids.size() * tables_[column.table]->dim());
  }
  return ahead_->Take(rows);
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
  return ahead_ != nullptr ? ahead_->Push(step, features, options)
                           : client_->Push(step, features, options);
}

}  // namespace hotbed
