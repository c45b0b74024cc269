#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "common/tables/shard_memory.h"
#include "common/tables/table_spec.h"
#include "common/tables/touch_filter_shape.h"
#include "google/protobuf/util/message_differencer.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/balance/cluster_view.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/keys.h"
#include "planner/plan_on_cluster.h"
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
  spec.initializer = FirstValuesOf(spec);
  MakeCanonical(&spec);
  return spec;
}

// The composed table, if any, whose part has this name or is to be a part of it.
absl::Status CheckFree(const ClusterState& state, const TableSpec& spec) {
  if (!IsPart(spec)) {
    if (PartsOfComposed(state, spec.name).empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat("table \"", spec.name, "\" exists already: it is a composed table"));
  }
  const std::string& name = spec.composition.table;
  const v1::TableSpec* const taken = state.FindTable(name);
  if (taken == nullptr) return absl::OkStatus();
  if (taken->composition().table().empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "table \"", name, "\" exists already (id ", taken->id(),
        ") and is a plain table; give the composed table another name, or drop that one first"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", name, "\" is a part of composed table \"", taken->composition().table(),
      "\", and a composed table has plain tables as its parts; take a name outside of \"",
      taken->composition().table(), "/...\""));
}

// The first field in which two specs differ, as "dim: 64 -> 32"; empty when they are equal. Changes
// made since the creation count only if the request has some. A table that began with the rows of a
// checkpoint is as good as one that did not; it kept its seed if it got another name.
std::string FirstDifference(v1::TableSpec existing, const v1::TableSpec& asked) {
  if (asked.changes().empty()) existing.clear_changes();
  if (existing.has_restored_from() && !asked.has_restored_from()) {
    existing.clear_restored_from();
    if (asked.seed() == DefaultTableSeed(asked.name())) existing.set_seed(asked.seed());
  }
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(existing, asked)) return "";
  return report.substr(0, report.find('\n'));
}

class CreateTables {
 public:
  // `single`: request and reply are those of one table.
  CreateTables(v1::CreateTablesRequest request, bool single, const OperationContext& context)
      : request_(std::move(request)), single_(single), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (planned_ && published_ == new_.size()) return Done(Finished(state));
    if (!planned_) {
      HOTBED_RETURN_IF_ERROR(Begin(state));
      if (request_.dry_run() || new_.empty()) return Done(Planned(state));
      planned_ = true;
    }
    return NextPart(state);
  }

 private:
  struct NewTable {
    TableSpec spec;
    uint32_t shards_min = 0;
    int entry = 0;                 // in request and reply
    std::vector<NewShard> placed;  // by the request; or empty
  };

  Next Done(v1::CreateTablesReply reply) const {
    if (single_) return std::move(*reply.mutable_tables(0));
    return reply;
  }

  // Finds the new tables and plans them; `reply_` then has all tables with their shards.
  absl::Status Begin(const ClusterState& state) {
    if (request_.tables().empty()) return absl::InvalidArgumentError("no tables are named");
    absl::flat_hash_map<std::string, int> entries;
    std::vector<TableSpec> specs;
    for (const v1::NewTable& asked : request_.tables()) {
      HOTBED_ASSIGN_OR_RETURN(specs.emplace_back(), Resolve(asked.spec()));
    }
    HOTBED_RETURN_IF_ERROR(CheckParts(specs));
    for (int entry = 0; entry < request_.tables_size(); ++entry) {
      TableSpec& spec = specs[entry];
      const auto [first, is_first] = entries.emplace(spec.name, entry);
      if (!is_first) {
        return absl::InvalidArgumentError(absl::StrCat("table \"", spec.name, "\": tables ",
                                                       first->second, " and ", entry,
                                                       " of the request have this name"));
      }
      v1::CreateTableReply& reply = *reply_.add_tables();
      if (const v1::TableSpec* existing = state.FindTable(spec.name)) {
        HOTBED_RETURN_IF_ERROR(MatchExisting(*existing, spec));
        *reply.mutable_spec() = *existing;
        AddShards(state, existing->id(), &reply);
        continue;
      }
      HOTBED_RETURN_IF_ERROR(CheckFree(state, spec));
      HOTBED_RETURN_IF_ERROR(GiveId(state, &spec));
      *reply.mutable_spec() = ToProto(spec);
      HOTBED_ASSIGN_OR_RETURN(std::vector<NewShard> placed, AskedShards(spec, entry));
      // The planner would cut a large table, and a vocabulary is never cut.
      const uint32_t least = spec.vocabulary != 0 && placed.empty() ? 1 : 0;
      const uint32_t shards_min = std::max(least, request_.tables(entry).shards());
      new_.push_back({std::move(spec), shards_min, entry, std::move(placed)});
    }
    return new_.empty() ? absl::OkStatus() : PlanTables(state);
  }

  absl::StatusOr<std::vector<NewShard>> AskedShards(const TableSpec& spec, int entry) const {
    const v1::NewTable& asked = request_.tables(entry);
    if (!asked.placed().empty() && asked.shards() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", spec.name, "\": ", asked.shards(),
                       " shards are asked for beside a plan of its shards; ask for one of both"));
    }
    std::vector<NewShard> shards;
    for (const v1::PlacedShard& shard : asked.placed()) {
      shards.push_back(
          {{shard.range_first(), shard.range_limit(), shard.column_first(), shard.column_limit()},
           {shard.servers().begin(), shard.servers().end()}});
    }
    if (spec.vocabulary != 0 && shards.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", spec.name, "\": the plan cuts it into ", shards.size(),
                       " shards, allowed: 1 for a vocabulary, which gives its numbers in one "
                       "order; create it without a plan"));
    }
    return shards;
  }

  absl::Status GiveId(const ClusterState& state, TableSpec* spec) const {
    const uint64_t used = state.counters().tables + new_.size();
    if (used >= std::numeric_limits<TableId>::max()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("table \"", spec->name, "\": all ", used, " table ids were used"));
    }
    spec->id = static_cast<TableId>(used + 1);
    return absl::OkStatus();
  }

  // Tables with a plan are placed by it, and those with a number of shards are spread evenly; then
  // the planner places the others.
  absl::Status PlanTables(const ClusterState& state) {
    ClusterView view = ServersView(state, Placeable(), LastLoads(context_.leases));
    std::vector<ServerCandidate> servers = Candidates(view);
    std::vector<Plan> plans(new_.size());
    bool any = false;
    for (size_t i = 0; i < new_.size(); ++i) {
      ClusterTable& table = view.tables.emplace_back(ClusterTable{new_[i].spec, {}});
      if (!new_[i].placed.empty()) {
        HOTBED_ASSIGN_OR_RETURN(plans[i], PlaceAsAsked(view, {new_[i].spec, new_[i].placed}));
      } else if (new_[i].shards_min > 0) {
        HOTBED_ASSIGN_OR_RETURN(plans[i], PlaceTable(new_[i].spec, servers, new_[i].shards_min));
      } else {
        HOTBED_RETURN_IF_ERROR(CutTable(new_[i].spec, 0).status());
        any = true;
        continue;
      }
      for (const PlannedShard& shard : plans[i].shards) table.shards.push_back(AsPlaced(shard));
      AddBytes({&table, 1}, &servers);
    }
    if (any) HOTBED_RETURN_IF_ERROR(PlaceTogether(state, std::move(view.tables), &plans));
    HOTBED_RETURN_IF_ERROR(CheckLimits(state, plans));
    for (size_t i = 0; i < new_.size(); ++i) {
      for (const PlannedShard& shard : plans[i].shards) {
        AddRecord(state, shard, reply_.mutable_tables(new_[i].entry));
      }
    }
    return absl::OkStatus();
  }

  std::function<bool(ServerId)> Placeable() const {
    return [leases = context_.leases](ServerId s) { return leases->Placeable(s); };
  }

  // The planner's own choice, of servers and of shards: it looks at all shards of the cluster.
  // `tables` are the new ones, some of which have their shards by now.
  absl::Status PlaceTogether(const ClusterState& state, std::vector<ClusterTable> tables,
                             std::vector<Plan>* plans) const {
    ClusterView view = ViewOf(state, Placeable(), LastLoads(context_.leases));
    if (auto weighed = context_.rebalance->Weighed(view)) view = *std::move(weighed);
    std::move(tables.begin(), tables.end(), std::back_inserter(view.tables));
    HOTBED_ASSIGN_OR_RETURN(Plan together, PlaceNewTables(view));
    const TableId first = new_.front().spec.id;
    for (PlannedShard& shard : together.shards) {
      (*plans)[shard.shard.table - first].shards.push_back(std::move(shard));
    }
    return absl::OkStatus();
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

  static ClusterShard AsPlaced(const PlannedShard& planned) {
    ClusterShard shard;
    shard.range = planned.range;
    shard.primary = planned.assignments.front().server;
    for (const Assignment& a : planned.assignments) {
      if (a.role == Role::kBackup) shard.backups.push_back(a.server);
    }
    return shard;
  }

  absl::Status CheckLimits(const ClusterState& state, const std::vector<Plan>& plans) const {
    size_t shards = state.shards().size();
    for (size_t i = 0; i < new_.size(); ++i) {
      const std::string& name = new_[i].spec.name;
      if (state.tables().size() + i >= context_.limits.tables_max) {
        return absl::ResourceExhaustedError(
            absl::StrCat("table \"", name, "\": the cluster has ", state.tables().size() + i,
                         " tables, the limit is ", context_.limits.tables_max, "; drop some"));
      }
      if (shards + plans[i].shards.size() > context_.limits.shards_max) {
        return absl::ResourceExhaustedError(
            absl::StrCat("table \"", name, "\" has ", plans[i].shards.size(), " shards beside ",
                         shards, " in the cluster, the limit is ", context_.limits.shards_max));
      }
      shards += plans[i].shards.size();
    }
    HOTBED_RETURN_IF_ERROR(CheckFilters(plans));
    return CheckMemoryOfShards(state, plans);
  }

  absl::Status CheckFilters(const std::vector<Plan>& plans) const {
    for (size_t i = 0; i < new_.size(); ++i) {
      const TouchFilterShape shape = TouchFilterShapeOf(new_[i].spec);
      for (const PlannedShard& shard : plans[i].shards) {
        const uint64_t bytes = shape.Bytes(shard.range.limit - shard.range.first);
        if (bytes <= kFilterShardBytesMax) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "table \"", new_[i].spec.name, "\": life.admit_ids is ",
            new_[i].spec.life.admission.ids, ", which gives one of its ", plans[i].shards.size(),
            " shards a filter of ", bytes, " bytes, allowed are ", kFilterShardBytesMax,
            "; ask for more shards (--shards), fewer ids, or more false positives"));
      }
    }
    return absl::OkStatus();
  }

  // Besides their rows, shards take memory that their servers must have.
  absl::Status CheckMemoryOfShards(const ClusterState& state,
                                   const std::vector<Plan>& plans) const {
    absl::flat_hash_map<ServerId, uint64_t> held;
    for (size_t i = 0; i < new_.size(); ++i) {
      for (const PlannedShard& shard : plans[i].shards) {
        for (const Assignment& a : shard.assignments) {
          const v1::ServerInfo& server = state.servers().at(a.server);
          const uint64_t host_bytes = server.load().host_bytes_limit();
          const uint64_t held_max = ShardsMax(host_bytes);
          uint64_t& shards =
              held.try_emplace(a.server, state.ShardsOfServer(a.server).size()).first->second;
          if (++shards <= held_max || host_bytes == 0) continue;
          return absl::ResourceExhaustedError(absl::StrCat(
              "table \"", new_[i].spec.name, "\": server ", server.name(), " would hold ", shards,
              " shards, allowed are ", held_max, ": each takes ", kShardBytes >> 10,
              " KiB besides its rows, and all of them at most a quarter of --host-bytes=",
              host_bytes, "; ask for fewer (--shards), add servers, or give them more memory"));
        }
      }
    }
    return absl::OkStatus();
  }

  void AddRecord(const ClusterState& state, const PlannedShard& planned,
                 v1::CreateTableReply* reply) {
    ShardRecord record;
    record.shard = planned.shard;
    record.range = planned.range;
    record.epoch = 1;
    for (const Assignment& a : planned.assignments) {
      record.members.push_back({a.server, state.servers().at(a.server).incarnation()});
    }
    record.primary = record.members.front();
    ToProto(record, reply->add_shards());
    to_write_.push_back(std::move(record));
  }

  // Writes the counter with the first shards, so that no other table gets the ids; then the other
  // shards; then the tables.
  Transaction NextPart(const ClusterState& state) {
    Transaction txn(&state);
    if (written_ == 0) txn.Put(keys::kTableCounter, absl::StrCat(new_.back().spec.id));
    for (; written_ < to_write_.size() && txn.ops().size() < kRecordsPerTxn; ++written_) {
      const ShardRecord& record = to_write_[written_];
      txn.Put(keys::Shard(record.shard), StoredRecord(record));
    }
    if (!txn.empty()) return txn;
    for (size_t i = 0; published_ < new_.size(); ++i, ++published_) {
      // The parts of a composed table, which follow each other, become visible together.
      if (i > 0 && i + PartsFrom(published_) > kTablesPerTxn) break;
      v1::CreateTableReply& reply = *reply_.mutable_tables(new_[published_].entry);
      txn.Put(keys::Table(reply.spec().id()), reply.spec().SerializeAsString());
      txn.Put(keys::Name(reply.spec().name()), absl::StrCat(reply.spec().id()));
      reply.set_created(true);
    }
    return txn;
  }

  // The parts of a composed table that begin at new_[at]; otherwise 1.
  size_t PartsFrom(size_t at) const {
    const Composition& first = new_[at].spec.composition;
    if (first.table.empty() || first.part != 0) return 1;
    size_t count = 1;
    while (at + count < new_.size() && new_[at + count].spec.composition.table == first.table) {
      ++count;
    }
    return count;
  }

  static void AddShards(const ClusterState& state, TableId table, v1::CreateTableReply* reply) {
    for (const ShardRecord* r : state.ShardsOfTable(table)) ToProto(*r, reply->add_shards());
  }

  // Nothing was written: the reply has the existing tables and the planned ones.
  v1::CreateTablesReply Planned(const ClusterState& state) const {
    v1::CreateTablesReply reply = reply_;
    for (v1::CreateTableReply& table : *reply.mutable_tables()) {
      table.set_plan_revision(state.plan_revision());
    }
    return reply;
  }

  // The records as committed, with their revisions.
  v1::CreateTablesReply Finished(const ClusterState& state) const {
    v1::CreateTablesReply reply = Planned(state);
    for (const NewTable& table : new_) {
      v1::CreateTableReply& one = *reply.mutable_tables(table.entry);
      one.clear_shards();
      AddShards(state, table.spec.id, &one);
    }
    return reply;
  }

  const v1::CreateTablesRequest request_;
  const bool single_;
  const OperationContext context_;
  bool planned_ = false;
  std::vector<NewTable> new_;          // ids ascend by one
  std::vector<ShardRecord> to_write_;  // of all new tables
  size_t written_ = 0;                 // of to_write_, put into a transaction
  size_t published_ = 0;               // of new_, likewise
  v1::CreateTablesReply reply_;
};

}  // namespace

Operation MakeOperation(v1::CreateTablesRequest request, const OperationContext& context) {
  return CreateTables(std::move(request), /*single=*/false, context);
}

Operation MakeOperation(v1::CreateTableRequest request, const OperationContext& context) {
  v1::CreateTablesRequest one;
  *one.add_tables()->mutable_spec() = std::move(*request.mutable_spec());
  one.mutable_tables(0)->set_shards(request.shards());
  one.set_if_not_exists(request.if_not_exists());
  one.set_dry_run(request.dry_run());
  return CreateTables(std::move(one), /*single=*/true, context);
}

std::vector<TableSpec> PartsOfComposed(const ClusterState& state, const std::string& name) {
  std::vector<TableSpec> parts;
  for (const auto& [id, message] : state.tables()) {
    if (message.composition().table() != name || name.empty()) continue;
    absl::StatusOr<TableSpec> spec = FromProto(message);
    if (spec.ok()) parts.push_back(*std::move(spec));
  }
  return PartsByName(parts, name);
}

namespace {

// The table of that name; or all parts of the composed table of that name, the first in front.
absl::StatusOr<std::vector<const v1::TableSpec*>> ToDrop(const ClusterState& state,
                                                         const std::string& name) {
  const v1::TableSpec* const found = state.FindTable(name);
  if (found != nullptr && found->composition().table().empty()) return std::vector{found};
  if (found != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table \"", name, "\" is a part of composed table \"", found->composition().table(),
        "\"; drop \"", found->composition().table(), "\", which drops all of its parts"));
  }
  std::vector<const v1::TableSpec*> parts;
  for (const auto& [id, spec] : state.tables()) {
    if (spec.composition().table() == name && !name.empty()) parts.push_back(&spec);
  }
  if (!parts.empty()) return parts;
  return absl::NotFoundError(absl::StrCat("table \"", name, "\" does not exist"));
}

}  // namespace

Operation MakeOperation(v1::DropTableRequest request, const OperationContext& context) {
  return [request = std::move(request), dropped_max = context.limits.dropped_max, dropped = false,
          reply = v1::DropTableReply()](const ClusterState& state) mutable -> Next {
    reply.set_plan_revision(state.plan_revision());
    if (dropped) return reply;
    HOTBED_ASSIGN_OR_RETURN(const auto tables, ToDrop(state, request.name()));
    reply.set_id(tables.front()->id());
    Transaction txn(&state);
    size_t kept = state.dropped().size();
    auto oldest = state.dropped().begin();
    for (const v1::TableSpec* const spec : tables) {
      reply.set_shards(reply.shards() + state.ShardsOfTable(spec->id()).size());
      if (!spec->composition().table().empty()) reply.add_parts(spec->id());
      txn.Delete(keys::Table(spec->id()));
      txn.Delete(keys::Name(spec->name()));
      txn.Put(keys::Dropped(spec->id()), spec->name());
      if (kept < dropped_max) {
        ++kept;
      } else if (oldest != state.dropped().end()) {
        txn.Delete(keys::Dropped((oldest++)->first));
      }
    }
    if (request.dry_run()) return reply;
    dropped = true;
    return txn;
  };
}

}  // namespace hotbed
