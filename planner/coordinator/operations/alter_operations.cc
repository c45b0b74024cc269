#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"
#include "proto/convert.h"

namespace hotbed {

namespace {

// Changes every part of a composed table that is trained, in one transaction.
Next AlterParts(const v1::AlterTableRequest& request, const ClusterState& state,
                v1::AlterTableReply* reply) {
  std::vector<TableSpec> parts = PartsOfComposed(state, request.name());
  if (parts.empty()) {
    return absl::NotFoundError(absl::StrCat("table \"", request.name(), "\" does not exist"));
  }
  HOTBED_ASSIGN_OR_RETURN(const TableChange change, FromProto(request.change()));
  Transaction txn(&state);
  bool changed = false;
  for (TableSpec& part : parts) {
    if (part.optimizer.kind == OptimizerKind::kNone) continue;
    const std::string before = ToProto(part).SerializeAsString();
    HOTBED_RETURN_IF_ERROR(AddTableChange(change, &part));
    const std::string record = ToProto(part).SerializeAsString();
    changed |= record != before;
    txn.Put(keys::Table(part.id), record);
  }
  *reply->mutable_spec() = ToProto(ComposedOf(parts));
  if (request.dry_run() || !changed) return *reply;
  reply->set_altered(true);
  return txn;
}

}  // namespace

Operation MakeOperation(v1::AlterTableRequest request, const OperationContext&) {
  return [request = std::move(request),
          reply = v1::AlterTableReply()](const ClusterState& state) mutable -> Next {
    reply.set_plan_revision(state.plan_revision());
    if (reply.altered()) return reply;
    const v1::TableSpec* const existing = state.FindTable(request.name());
    if (existing == nullptr) {
      return AlterParts(request, state, &reply);
    }
    if (request.has_read() && request.read().SerializeAsString() != existing->SerializeAsString()) {
      return absl::AbortedError(absl::StrCat("table \"", request.name(),
                                             "\" was altered by another request meanwhile; read it "
                                             "again"));
    }
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(*existing));
    HOTBED_ASSIGN_OR_RETURN(const TableChange change, FromProto(request.change()));
    HOTBED_RETURN_IF_ERROR(AddTableChange(change, &spec));
    *reply.mutable_spec() = ToProto(spec);
    const std::string record = reply.spec().SerializeAsString();
    if (request.dry_run() || record == existing->SerializeAsString()) return reply;
    Transaction txn(&state);
    txn.Put(keys::Table(existing->id()), record);
    reply.set_altered(true);
    return txn;
  };
}

}  // namespace hotbed
