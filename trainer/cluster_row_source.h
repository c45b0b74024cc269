// Rows in a Hotbed cluster, with one client session per trainer thread.
#ifndef HOTBED_TRAINER_CLUSTER_ROW_SOURCE_H_
#define HOTBED_TRAINER_CLUSTER_ROW_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/row_source.h"

namespace hotbed {

class ClusterRowSource : public RowSource {
 public:
  // Connects as `session_name`, joins its group of trainers if the options name one, and opens the
  // tables, which must exist. With `fresh_rows`, Take
  // waits until the rows contain all of this source's pushes (hotbed/look_ahead.h); otherwise the
  // rows of a Pull may lack those that were in flight.
  static absl::StatusOr<std::unique_ptr<RowSource>> Open(
      const std::string& target, const ClientOptions& options,
      const std::vector<std::string>& tables,
      const std::optional<LookAheadOptions>& fresh_rows = std::nullopt);

  Future<absl::Status> Pull(const std::vector<RowColumn>& columns) override;
  Future<PushResult> Push(uint64_t step, const std::vector<RowColumn>& columns,
                          float learning_rate) override;
  absl::Status Take(const std::vector<RowColumn>& columns) override;
  LookAheadStats look_ahead() const override {
    return ahead_ != nullptr ? ahead_->Stats() : LookAheadStats{};
  }
  uint64_t Trainers() override;
  Future<absl::Status> Lookup(const std::vector<RowColumn>& columns) override;
  uint64_t rows_pulled() const override { return client_->Stats().rows_pulled; }
  uint64_t rows_pushed() const override { return client_->Stats().rows_pushed; }

 private:
  std::vector<PullFeature> PullFeatures(const std::vector<RowColumn>& columns) const;

  std::unique_ptr<Client> client_;
  std::unique_ptr<LookAhead> ahead_;  // or null
  std::vector<const Table*> tables_;
  bool in_group_ = false;
  uint64_t trainers_ = 0;  // by the last answer
  absl::Time join_again_;  // not before, after the group has given this trainer up
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_CLUSTER_ROW_SOURCE_H_
