#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/table_spec.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

class AlterTable : public Operation {
 public:
  explicit AlterTable(v1::AlterTableRequest request) : request_(std::move(request)) {}

  Next Advance(const ClusterState& state) override {
    reply_.set_plan_revision(state.plan_revision());
    if (written_) {
      reply_.set_altered(true);
      return Next::Done(Reply(reply_));
    }
    const v1::TableSpec* existing = state.FindTable(request_.name());
    if (existing == nullptr) {
      return Next::Done(
          absl::NotFoundError(absl::StrCat("table \"", request_.name(), "\" does not exist")));
    }
    const absl::Status changed = Change(*existing);
    if (!changed.ok()) return Next::Done(changed);
    const std::string record = reply_.spec().SerializeAsString();
    if (request_.dry_run() || record == existing->SerializeAsString()) {
      return Next::Done(Reply(reply_));
    }
    Transaction txn(&state);
    txn.Put(keys::Table(existing->id()), record);
    written_ = true;
    return Next::Commit(std::move(txn));
  }

  void Restart() override { written_ = false; }

 private:
  absl::Status Change(const v1::TableSpec& existing) {
    absl::StatusOr<TableSpec> spec = FromProto(existing);
    if (!spec.ok()) return spec.status();
    const absl::StatusOr<TableChange> change = FromProto(request_.change());
    if (!change.ok()) return change.status();
    if (absl::Status added = AddTableChange(*change, &*spec); !added.ok()) return added;
    *reply_.mutable_spec() = ToProto(*spec);
    return absl::OkStatus();
  }

  const v1::AlterTableRequest request_;
  bool written_ = false;
  v1::AlterTableReply reply_;
};

}  // namespace

std::unique_ptr<Operation> MakeAlterTable(v1::AlterTableRequest request) {
  return std::make_unique<AlterTable>(std::move(request));
}

}  // namespace hotbed
