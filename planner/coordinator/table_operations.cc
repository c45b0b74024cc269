#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/table_spec.h"
#include "google/protobuf/util/message_differencer.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/cluster_view.h"
#include "planner/coordinator/keys.h"
#include "planner/coordinator/operations.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// The spec as it will be stored, without its id.
absl::StatusOr<TableSpec> Resolve(const v1::TableSpec& asked) {
  HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(asked));
  HOTBED_RETURN_IF_ERROR(ValidateTableSpec(spec));
  if (spec.id != 0) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", spec.name, "\": id is ", spec.id,
                                                   ", allowed: 0 (the cluster assigns it)"));
  }
  if (spec.seed == 0) spec.seed = DefaultTableSeed(spec.name);
  return spec;
}

// The first field in which two specs differ, as "dim: 64 -> 32"; empty when they are equal.
std::string FirstDifference(const v1::TableSpec& existing, const v1::TableSpec& asked) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(existing, asked)) return "";
  return report.substr(0, report.find('\n'));
}

class CreateTable : public Operation {
 public:
  CreateTable(v1::CreateTableRequest request, ClusterLimits limits,
              std::function<bool(ServerId)> live)
      : request_(std::move(request)), limits_(limits), live_(std::move(live)) {}

  Next Advance(const ClusterState& state) override {
    if (reply_.created()) return Next::Done(Reply(Finished(state)));
    if (!planned_) {
      absl::StatusOr<bool> go_on = Begin(state);
      if (!go_on.ok()) return Next::Done(go_on.status());
      if (!*go_on) {
        reply_.set_plan_revision(state.plan_revision());
        return Next::Done(Reply(reply_));
      }
    }
    return Next::Commit(NextPart(state));
  }

  void Restart() override {
    planned_ = false;
    written_ = 0;
    reply_.Clear();
  }

 private:
  // Plans the table. False: there is nothing to write, `reply_` is the answer.
  absl::StatusOr<bool> Begin(const ClusterState& state) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, Resolve(request_.spec()));
    if (const v1::TableSpec* existing = state.FindTable(spec.name)) {
      HOTBED_RETURN_IF_ERROR(MatchExisting(*existing, spec));
      *reply_.mutable_spec() = *existing;
      for (const v1::ShardRecord* r : state.ShardsOfTable(existing->id())) {
        *reply_.add_shards() = *r;
      }
      return false;
    }
    if (state.counters().tables >= std::numeric_limits<TableId>::max()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "table \"", spec.name, "\": all ", state.counters().tables, " table ids were used"));
    }
    spec.id = static_cast<TableId>(state.counters().tables + 1);
    HOTBED_ASSIGN_OR_RETURN(const Plan plan, PlanTable(state, spec));
    HOTBED_RETURN_IF_ERROR(CheckLimits(state, spec, plan));
    *reply_.mutable_spec() = ToProto(spec);
    for (const PlannedShard& planned : plan.shards) AddRecord(state, planned);
    planned_ = !request_.dry_run();
    return planned_;
  }

  // A number of shards that was asked for is spread evenly; else the planner decides.
  absl::StatusOr<Plan> PlanTable(const ClusterState& state, const TableSpec& spec) const {
    if (request_.shards() > 0) {
      std::vector<ServerCandidate> servers;
      for (const auto& [id, info] : state.servers()) {
        if (live_(id)) servers.push_back({id, BytesOn(state, id)});
      }
      return PlaceTable(spec, std::move(servers), request_.shards());
    }
    HOTBED_RETURN_IF_ERROR(CutTable(spec, 0).status());
    ClusterView view = ViewOf(state, live_);
    view.tables.push_back({spec, {}});
    return PlaceNewTables(view);
  }

  absl::Status MatchExisting(const v1::TableSpec& existing, TableSpec asked) const {
    asked.id = existing.id();
    if (!request_.if_not_exists()) {
      return absl::AlreadyExistsError(
          absl::StrCat("table \"", asked.name, "\" exists already (id ", existing.id(), ")"));
    }
    const std::string difference = FirstDifference(existing, ToProto(asked));
    if (difference.empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        "table \"", asked.name, "\" exists and differs from what was asked: ", difference));
  }

  static uint64_t BytesOn(const ClusterState& state, ServerId server) {
    uint64_t bytes = 0;
    for (const uint64_t packed : state.ShardsOfServer(server)) {
      const ShardId id = ShardId::FromPacked(packed);
      auto table = state.tables().find(id.table);
      if (table == state.tables().end()) continue;
      const absl::StatusOr<TableSpec> spec = FromProto(table->second);
      const absl::StatusOr<ShardRecord> record = FromProto(state.shards().at(packed));
      if (spec.ok() && record.ok()) bytes += RangeBytes(*spec, record->range);
    }
    return bytes;
  }

  absl::Status CheckLimits(const ClusterState& state, const TableSpec& spec,
                           const Plan& plan) const {
    if (state.tables().size() >= limits_.tables_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("table \"", spec.name, "\": the cluster has ", state.tables().size(),
                       " tables, the limit is ", limits_.tables_max, "; drop some"));
    }
    if (state.shards().size() + plan.shards.size() > limits_.shards_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "table \"", spec.name, "\" has ", plan.shards.size(), " shards beside ",
          state.shards().size(), " in the cluster, the limit is ", limits_.shards_max));
    }
    return absl::OkStatus();
  }

  void AddRecord(const ClusterState& state, const PlannedShard& planned) {
    const ServerId server = planned.assignments.front().server;
    ShardRecord record;
    record.shard = planned.shard;
    record.range = planned.range;
    record.epoch = 1;
    record.primary = {server, state.servers().at(server).incarnation()};
    record.members = {record.primary};
    *reply_.add_shards() = ToProto(record);
  }

  // The counter with the first shards, so that no other table gets the id; then the other shards;
  // the table last.
  Transaction NextPart(const ClusterState& state) {
    Transaction txn(&state);
    if (written_ == 0) txn.Put(keys::kTableCounter, absl::StrCat(reply_.spec().id()));
    for (; written_ < reply_.shards_size() && txn.ops().size() < kRecordsPerTxn; ++written_) {
      const v1::ShardRecord& record = reply_.shards(written_);
      txn.Put(keys::Shard(ShardId::FromPacked(record.shard())), record.SerializeAsString());
    }
    if (!txn.empty()) return txn;
    txn.Put(keys::Table(reply_.spec().id()), reply_.spec().SerializeAsString());
    txn.Put(keys::Name(reply_.spec().name()), absl::StrCat(reply_.spec().id()));
    reply_.set_created(true);
    return txn;
  }

  // The records as committed, with their revisions.
  v1::CreateTableReply Finished(const ClusterState& state) const {
    v1::CreateTableReply reply = reply_;
    reply.set_plan_revision(state.plan_revision());
    reply.clear_shards();
    for (const v1::ShardRecord* r : state.ShardsOfTable(reply.spec().id())) {
      *reply.add_shards() = *r;
    }
    return reply;
  }

  const v1::CreateTableRequest request_;
  const ClusterLimits limits_;
  const std::function<bool(ServerId)> live_;
  bool planned_ = false;
  int written_ = 0;  // shards whose record was put into a transaction
  v1::CreateTableReply reply_;
};

class DropTable : public Operation {
 public:
  DropTable(v1::DropTableRequest request, ClusterLimits limits)
      : request_(std::move(request)), limits_(limits) {}

  Next Advance(const ClusterState& state) override {
    reply_.set_plan_revision(state.plan_revision());
    if (dropped_) return Next::Done(Reply(reply_));
    const v1::TableSpec* spec = state.FindTable(request_.name());
    if (spec == nullptr) {
      return Next::Done(
          absl::NotFoundError(absl::StrCat("table \"", request_.name(), "\" does not exist")));
    }
    reply_.set_id(spec->id());
    reply_.set_shards(state.ShardsOfTable(spec->id()).size());
    if (request_.dry_run()) return Next::Done(Reply(reply_));

    Transaction txn(&state);
    txn.Delete(keys::Table(spec->id()));
    txn.Delete(keys::Name(spec->name()));
    txn.Put(keys::Dropped(spec->id()), spec->name());
    if (state.dropped().size() >= limits_.dropped_max) {
      txn.Delete(keys::Dropped(state.dropped().begin()->first));
    }
    dropped_ = true;
    return Next::Commit(std::move(txn));
  }
  void Restart() override { dropped_ = false; }

 private:
  const v1::DropTableRequest request_;
  const ClusterLimits limits_;
  bool dropped_ = false;
  v1::DropTableReply reply_;
};

}  // namespace

std::unique_ptr<Operation> MakeCreateTable(v1::CreateTableRequest request, ClusterLimits limits,
                                           std::function<bool(ServerId)> live) {
  return std::make_unique<CreateTable>(std::move(request), limits, std::move(live));
}

std::unique_ptr<Operation> MakeDropTable(v1::DropTableRequest request, ClusterLimits limits) {
  return std::make_unique<DropTable>(std::move(request), limits);
}

}  // namespace hotbed
