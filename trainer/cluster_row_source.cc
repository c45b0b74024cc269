#include "trainer/cluster_row_source.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kJoinAgain = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> ClusterRowSource::Open(
    const std::string& target, const ClientOptions& options, const std::vector<std::string>& tables,
    const std::optional<LookAheadOptions>& fresh_rows) {
  auto source = std::make_unique<ClusterRowSource>();
  HOTBED_ASSIGN_OR_RETURN(source->client_, Client::Connect(target, options));
  if (!options.trainer_group.empty()) {
    HOTBED_RETURN_IF_ERROR(source->client_->JoinTrainers().status());
    source->in_group_ = true;
  }
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

// A trainer that was silent for its lease, because its machine was paused, say, was given up and
// joins again. While the coordinator is away, the number stays what it was.
uint64_t ClusterRowSource::Trainers() {
  if (!in_group_) return 0;
  const absl::Time now = absl::Now();
  if (client_->TrainersInGroup() == 0 && now >= join_again_) {
    join_again_ = now + kJoinAgain;
    client_->JoinTrainers(kJoinAgain).status().IgnoreError();
  }
  if (const uint64_t members = client_->TrainersInGroup(); members > 0) trainers_ = members;
  return trainers_;
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
