#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/serving/served_versions.h"
#include "planner/coordinator/serving/serving_servers.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"
#include "proto/served_part.h"

namespace hotbed {
namespace {

constexpr int kTablesMax = 64;  // of one request: they are one transaction
constexpr uint32_t kReplicasMax = 64;

std::string PlaceText(const v1::ServedTable& table) {
  if (table.servers().empty()) return "no serving server that has room for it";
  if (table.parts() <= 1) return absl::StrJoin(table.servers(), ", ");
  std::vector<std::string> places;
  for (int i = 0; i < table.servers_size(); ++i) {
    places.push_back(
        absl::StrCat(table.servers(i), " (part ", ServedPartAt(table, i).part + 1, ")"));
  }
  return absl::StrCat(table.parts(), " parts on ", absl::StrJoin(places, ", "));
}

std::string PartsText(uint32_t parts) {
  return parts == 1 ? "1 part" : absl::StrCat(parts, " parts");
}

// Names the cut that is to follow; empty: there is none.
std::string ComingText(const v1::ServedTable& table) {
  if (!table.has_beside() || table.beside().leaves()) return "";
  const v1::ServedTable cut = BesideOf(table);
  std::set<uint32_t> placed;
  for (int i = 0; i < cut.servers_size(); ++i) placed.insert(ServedPartAt(cut, i).part);
  const std::string parts = PartsText(ServedPartsOf(cut));
  if (placed.size() < ServedPartsOf(cut)) {
    return absl::StrCat("; until servers have room for ", parts, " besides, ",
                        ServedPartsOf(cut) - placed.size(), " more, it stays in ",
                        PartsText(ServedPartsOf(table)));
  }
  return absl::StrCat("; ", parts, " are loaded by ", absl::StrJoin(cut.servers(), ", "),
                      ", and answer when all are ready");
}

// Names the versions that the coming parts of `had` were given up for, or do without.
std::string GivenUpText(const OperationContext& context, const ServedVersions& versions,
                        const v1::ServedTable& had) {
  std::vector<std::string> texts;
  for (const LackedVersion& lacked : context.serving->Lacked(context.now_ns, had)) {
    const auto version = versions.find(lacked.number);
    if (!lacked.failed || version == versions.end()) continue;
    texts.push_back(absl::StrCat("version ", version->second.name(), ", which part ",
                                 lacked.part.part + 1, " on ", lacked.server,
                                 " has not taken up for ", lacked.failed_ns / kSecondNs,
                                 " s: ", lacked.trouble));
  }
  return absl::StrJoin(texts, "; ");
}

// Why a table is in other parts than `had`, or is not; empty: there is nothing to say.
std::string CutText(const v1::ServedTable& had, const v1::ServedTable& table,
                    const std::string& given_up) {
  const bool came = had.has_beside() && !had.beside().leaves();
  if (ServedPartsOf(had) != ServedPartsOf(table)) {
    return came && ServedPartsOf(BesideOf(had)) == ServedPartsOf(table) && table.beside().leaves()
               ? absl::StrCat("; it was in ", PartsText(ServedPartsOf(had)), " until now",
                              given_up.empty() ? "" : "; they follow without ", given_up)
               : absl::StrCat("; ", PartsText(ServedPartsOf(had)),
                              " did not fit, and there is no room for both: it is not answered "
                              "until the new ones are loaded");
  }
  if (came && !table.has_beside()) {
    return absl::StrCat("; ", PartsText(ServedPartsOf(BesideOf(had))),
                        given_up.empty() ? " do not fit" : " do not follow, for want of ",
                        given_up);
  }
  return ComingText(table);
}

// Why a hot table has another number of copies than `had`; empty where that was beyond its limits.
std::string DemandText(const OperationContext& context, const v1::ServedTable& had,
                       const v1::ServedTable& table) {
  const uint32_t before = had.replicas();
  if (before == table.replicas() || before < had.replicas_min() || before > had.replicas_max()) {
    return "";
  }
  const double rows = context.serving->LookupRowsPerS(context.now_ns, had) / before;
  return absl::StrCat("; ", table.replicas(), " copies are wanted",
                      table.parts() > 1 ? " of each part" : "", ", as each of ", before,
                      " was asked for ", static_cast<uint64_t>(rows), " rows per second");
}

// As the command line has it.
std::string FormatWord(v1::ServedFormat format) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::ServedFormat_Name(format), "SERVED_"));
}

class ServeTables {
 public:
  ServeTables(v1::ServeTablesRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (done_) return reply_;
    HOTBED_RETURN_IF_ERROR(Check());
    Transaction txn(&state);
    context_.serving->SetCurrent(CurrentVersions(state.version_choices()));
    ServedTables after = state.served();
    for (const std::string& name : request_.tables()) {
      const v1::TableSpec* const spec = state.FindTable(name);
      if (spec == nullptr) return NoTableToServe(state, name);
      const absl::Status changed = request_.action() == v1::ServeTablesRequest::ADD
                                       ? Add(*spec, &after, &txn)
                                       : Remove(*spec, &after, &txn);
      if (!changed.ok()) return changed;
      txn.Require(keys::Table(spec->id()));
    }
    if (request_.dry_run() || txn.empty()) return reply_;
    EventWriter(&state, context_.unix_ms).Add("serving", Text(), 0, 0, &txn);
    done_ = true;
    return txn;
  }

 private:
  absl::Status Check() {
    reply_.Clear();
    if (!v1::ServeTablesRequest::Action_IsValid(request_.action()) ||
        !v1::ServedFormat_IsValid(request_.format())) {
      return absl::InvalidArgumentError(absl::StrCat("action ", request_.action(), " or format ",
                                                     request_.format(),
                                                     " is not known to this coordinator"));
    }
    if (request_.tables_size() < 1 || request_.tables_size() > kTablesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(request_.tables_size(), " tables in one request, allowed: 1..", kTablesMax));
    }
    const std::set<std::string> names(request_.tables().begin(), request_.tables().end());
    if (static_cast<int>(names.size()) != request_.tables_size()) {
      return absl::InvalidArgumentError("a table is named twice");
    }
    if (request_.action() == v1::ServeTablesRequest::ADD && request_.replicas() > kReplicasMax) {
      return absl::InvalidArgumentError(absl::StrCat("replicas is ", request_.replicas(),
                                                     ", allowed: 0 (as many as it has, or one)..",
                                                     kReplicasMax));
    }
    if (request_.replicas_max() != 0 &&
        (request_.replicas_max() < request_.replicas() || request_.replicas_max() > kReplicasMax)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "replicas_max is ", request_.replicas_max(), ", allowed: 0 (as replicas), or ",
          request_.replicas(), " (replicas)..", kReplicasMax));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const v1::TableSpec& spec, ServedTables* after, Transaction* txn) {
    v1::ServedTable& table = (*after)[spec.id()];
    const v1::ServedFormat format = request_.has_format() ? request_.format() : table.format();
    if (spec.vocabulary() != 0 && format != v1::SERVED_FP32) {
      return absl::FailedPreconditionError(absl::StrCat(
          "table ", spec.name(), " is a vocabulary, whose numbers ", FormatWord(format),
          " would round; allowed: fp32 ('hotbed serve add ", spec.name(), " --format=fp32')"));
    }
    if (table.table() != 0 && table.format() != format) {
      return absl::FailedPreconditionError(absl::StrCat(
          "table ", spec.name(), " is served as ", FormatWord(table.format()), ", asked for is ",
          FormatWord(format), ": end it first ('hotbed serve remove ", spec.name(), "')"));
    }
    const uint64_t parts_max = std::min<uint64_t>(kServedPartsMax, ServedPlaces::Of(spec).places);
    if (request_.parts() > parts_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("parts is ", request_.parts(), " for table ", spec.name(),
                       ", allowed: 0 (as many as it has, or as memory demands)..", parts_max));
    }
    HOTBED_RETURN_IF_ERROR(SetParts(spec.name(), &table));
    table.set_table(spec.id());
    table.set_format(format);
    SetReplicas(&table);
    if (request_.has_staleness_ms_max()) {
      table.set_staleness_ms_max(request_.staleness_ms_max());
    }
    v1::ServedTable placed = table;
    context_.serving->Place(context_.now_ns, *after, spec, &placed);
    table = placed;
    *reply_.add_tables() = table;
    txn->Put(keys::Served(spec.id()), table.SerializeAsString());
    return absl::OkStatus();
  }

  // The parts that a table has stay until the others are loaded.
  absl::Status SetParts(const std::string& name, v1::ServedTable* table) const {
    const uint32_t parts = request_.parts();
    if (parts == 0) return absl::OkStatus();
    if (table->beside().leaves()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "table ", name, " was cut into ", PartsText(ServedPartsOf(*table)),
          " a moment ago, and its former parts are still there: ask again in some seconds"));
    }
    table->set_parts_min(parts);
    if (table->servers().empty()) table->set_parts(parts);
    if (parts == ServedPartsOf(*table)) {
      table->clear_beside();
    } else if (!table->has_beside() || ServedPartsOf(BesideOf(*table)) != parts) {
      table->clear_beside();
      table->mutable_beside()->set_parts(parts);
      table->mutable_beside()->set_asked(true);
    }
    return absl::OkStatus();
  }

  // A table that is served keeps the copies that it has, within the limits.
  void SetReplicas(v1::ServedTable* table) const {
    if (request_.replicas() == 0 && request_.replicas_max() == 0 && table->replicas() != 0) return;
    const uint32_t least = std::max<uint32_t>(request_.replicas(), 1);
    const uint32_t most = std::max(request_.replicas_max(), least);
    const uint32_t now = table->replicas() == 0 ? least : table->replicas();
    table->set_replicas(std::clamp(now, least, most));
    table->set_replicas_min(most > least ? least : 0);
    table->set_replicas_max(most > least ? most : 0);
  }

  absl::Status Remove(const v1::TableSpec& spec, ServedTables* after, Transaction* txn) {
    const auto table = after->find(spec.id());
    if (table == after->end()) {
      return absl::NotFoundError(absl::StrCat("table ", spec.name(), " is not served"));
    }
    *reply_.add_tables() = table->second;
    txn->Delete(keys::Served(spec.id()));
    after->erase(table);
    return absl::OkStatus();
  }

  std::string Text() const {
    std::vector<std::string> parts;
    for (int i = 0; i < request_.tables_size(); ++i) {
      parts.push_back(request_.action() == v1::ServeTablesRequest::ADD
                          ? absl::StrCat(request_.tables(i), " on ", PlaceText(reply_.tables(i)),
                                         ComingText(reply_.tables(i)))
                          : request_.tables(i));
    }
    return absl::StrCat(
        request_.action() == v1::ServeTablesRequest::ADD ? "serving " : "not serving any more ",
        absl::StrJoin(parts, "; "));
  }

  const v1::ServeTablesRequest request_;
  const OperationContext context_;
  bool done_ = false;
  v1::ServeTablesReply reply_;
};

}  // namespace

absl::Status NoTableToServe(const ClusterState& state, const std::string& name) {
  if (PartsOfComposed(state, name).empty()) {
    return absl::NotFoundError(
        absl::StrCat("table \"", absl::CEscape(name.substr(0, 80)), "\" does not exist"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("table \"", name,
                   "\" is composed: its clients make its rows of other tables, so that no copy of "
                   "them can be served; allowed: plain tables"));
}

Operation MakeOperation(v1::ServeTablesRequest request, const OperationContext& context) {
  return ServeTables(std::move(request), context);
}

Operation MakePlaceServing(const OperationContext& context) {
  return [context, done = false](const ClusterState& state) mutable -> Next {
    Transaction txn(&state);
    if (std::exchange(done, true)) return Reply();
    context.serving->SetCurrent(CurrentVersions(state.version_choices()));
    EventWriter events(&state, context.unix_ms);
    for (const v1::ServedTable& table :
         context.serving->Changes(context.now_ns, state.served(), state.tables())) {
      if (txn.ops().size() + 1 + kOpsPerEvent > kRecordsPerTxn) break;
      if (table.replicas() == 0) {
        txn.Delete(keys::Served(table.table()));
        continue;
      }
      txn.Put(keys::Served(table.table()), table.SerializeAsString());
      const v1::ServedTable& had = state.served().at(table.table());
      v1::ServedTable without_former = had;
      without_former.clear_beside();
      // Nobody is interested in when the former parts have gone.
      if (had.beside().leaves() &&
          without_former.SerializeAsString() == table.SerializeAsString()) {
        continue;
      }
      const std::string why =
          absl::StrCat(CutText(had, table, GivenUpText(context, state.versions(), had)),
                       DemandText(context, had, table));
      events.Add("serving",
                 absl::StrCat(state.tables().at(table.table()).name(), " is served by ",
                              PlaceText(table), why),
                 0, 0, &txn);
    }
    if (txn.empty()) return Reply();
    return txn;
  };
}

}  // namespace hotbed
