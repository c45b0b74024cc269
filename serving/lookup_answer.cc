#include "serving/lookup_answer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "proto/served_bags.h"
#include "row_math/types.h"
#include "serving/row_answer.h"

namespace hotbed {
namespace {

using Outcome = v1::ServingTableReply;

constexpr int kTablesMax = 1024;
// Some 20 us, as the waking of a thread; and the work of a row and of a table besides its floats.
constexpr uint64_t kQuickFloatsMax = 4096;
constexpr uint64_t kFloatsOfARow = 16;
constexpr uint64_t kFloatsOfATable = 64;

struct LookupCounters {
  static LookupCounters& Get() {
    static auto* const counters = new LookupCounters;
    return *counters;
  }
  Counter refused{"hotbed_serving_refused_tables_total",
                  "Tables of lookups that were refused: not served here, still loading, too old, "
                  "behind another copy, or not allowed to the caller."};
};

// One table of a request, with its parts of the request's bytes.
struct AskedTable {
  uint32_t table = 0;
  ServedPart part;
  const char* ids = nullptr;
  ServedBags bags;
  uint32_t age_ms_max = 0;
};

// Calls `each(asked)` for the tables in order, and returns the first status that is not OK. The
// bytes are those of the tables, as CheckBytes has found.
template <typename Each>
absl::Status ForEachTable(const v1::ServingLookupRequest& request, Each each) {
  const char* ids = request.ids().data();
  const char* offsets = request.offsets().data();
  const char* weights = request.weights().data();
  for (const v1::ServingLookupTable& table : request.tables()) {
    AskedTable asked = {.table = table.table(), .part = ServedPartOf(table), .ids = ids};
    asked.age_ms_max = table.age_ms_max();
    asked.bags = {.pooling = table.pooling(),
                  .ids = table.ids(),
                  .bags = table.bags(),
                  .offsets = offsets,
                  .weights = table.weighted() ? weights : nullptr};
    HOTBED_RETURN_IF_ERROR(each(asked));
    ids += uint64_t{table.ids()} * sizeof(uint64_t);
    offsets += uint64_t{table.bags()} * sizeof(uint32_t);
    if (table.weighted()) weights += uint64_t{table.ids()} * sizeof(float);
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const v1::ServingLookupRequest& request) {
  uint64_t ids = 0, bags = 0, weighted = 0;
  for (const v1::ServingLookupTable& table : request.tables()) {
    ids += table.ids();
    bags += table.bags();
    weighted += table.weighted() ? table.ids() : 0;
  }
  const auto check = [](const char* name, uint64_t count, uint64_t each, const std::string& bytes) {
    if (count * each == bytes.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the tables name ", count, " ", name, " of ",
                                                   each, " bytes, the field ", name, " has ",
                                                   bytes.size(), " bytes"));
  };
  HOTBED_RETURN_IF_ERROR(check("ids", ids, sizeof(uint64_t), request.ids()));
  HOTBED_RETURN_IF_ERROR(check("offsets", bags, sizeof(uint32_t), request.offsets()));
  return check("weights", weighted, sizeof(float), request.weights());
}

}  // namespace

absl::Status CheckLookup(const v1::ServingLookupRequest& request) {
  if (request.tables_size() < 1 || request.tables_size() > kTablesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("tables has ", request.tables_size(), " entries, allowed: 1..", kTablesMax));
  }
  HOTBED_RETURN_IF_ERROR(CheckBytes(request));
  return ForEachTable(request, [](const AskedTable& asked) {
    return CheckServedBags(absl::StrCat("table number ", asked.table), asked.bags);
  });
}

namespace {

void Refuse(Outcome::Outcome outcome, std::string detail, Outcome* said) {
  LookupCounters::Get().refused.Add(1);
  said->set_outcome(outcome);
  said->set_detail(std::move(detail));
}

void RefuseLoading(const TableReplica& replica, Outcome* said) {
  Refuse(Outcome::LOADING,
         absl::StrCat("table ", replica.name(), " is being loaded here: ", replica.rows()->rows(),
                      " rows so far"),
         said);
}

void RefuseBehind(uint32_t table, uint64_t age_ms_max, Outcome* said) {
  Refuse(Outcome::BEHIND,
         absl::StrCat("the rows of table number ", table, " are ", said->age_ms(),
                      " ms old here, and may be older than those of an answer before; allowed: ",
                      age_ms_max, " ms"),
         said);
}

// The rows of a version do not age. Null: refused.
std::shared_ptr<const TableReplica> Admit(
    const TableReplicas& tables, const std::function<absl::Status(absl::string_view)>& may_read,
    uint32_t table, const ServedPart& part, uint64_t version, uint64_t staleness_ms_max,
    Outcome* said) {
  std::shared_ptr<const TableReplica> replica = tables.Find(table, part);
  if (replica == nullptr) replica = tables.Find(table);
  if (replica == nullptr) {
    Refuse(Outcome::NOT_SERVED, absl::StrCat("table number ", table, " is not served here"), said);
    return nullptr;
  }
  if (may_read) {
    const absl::Status may = may_read(replica->name());
    if (!may.ok()) {
      Refuse(Outcome::DENIED, std::string(may.message()), said);
      return nullptr;
    }
  }
  if (replica->part() != part) {
    Refuse(Outcome::NOT_SERVED,
           absl::StrCat("part ", part.part + 1, " of ", part.parts, " of table ", replica->name(),
                        " is not served here, but part ", replica->part().part + 1, " of ",
                        replica->part().parts),
           said);
    return nullptr;
  }
  if (version != 0) return replica;
  if (!replica->ready()) {
    RefuseLoading(*replica, said);
    return nullptr;
  }
  const uint64_t age_ms = replica->AgeMs();
  uint64_t limit = replica->staleness_ms_max();
  if (staleness_ms_max != 0)
    limit = limit == 0 ? staleness_ms_max : std::min(limit, staleness_ms_max);
  said->set_age_ms(age_ms);
  if (limit != 0 && age_ms > limit) {
    Refuse(Outcome::TOO_OLD,
           absl::StrCat("the rows of table ", replica->name(), " are ", age_ms,
                        " ms old here, the limit is ", limit, " ms"),
           said);
    return nullptr;
  }
  return replica;
}

// The rows that `replica` is asked for. Nothing: refused.
std::optional<RowsView> ViewOf(const TableReplica& replica, uint64_t version, Outcome* said) {
  if (version == 0) {
    std::optional<RowsView> latest = replica.Latest();
    if (replica.ready()) return latest;
    // It has given its rows up since it was admitted.
    RefuseLoading(replica, said);
    return std::nullopt;
  }
  std::optional<RowsView> view = replica.Version(version);
  if (!view.has_value()) {
    Refuse(Outcome::NO_VERSION,
           absl::StrCat("table ", replica.name(), ": ", replica.WhyNoVersion(version)), said);
  }
  return view;
}

}  // namespace

std::optional<RowsView> AdmitRows(const TableReplicas& tables,
                                  const std::function<absl::Status(absl::string_view)>& may_read,
                                  uint32_t table, const ServedPart& part, uint64_t version,
                                  uint64_t staleness_ms_max, uint64_t age_ms_max,
                                  uint64_t lookup_rows, Outcome* said) {
  const auto replica = Admit(tables, may_read, table, part, version, staleness_ms_max, said);
  if (replica == nullptr) return std::nullopt;
  if (age_ms_max != 0 && version == 0 && said->age_ms() > age_ms_max) {
    RefuseBehind(table, age_ms_max, said);
    return std::nullopt;
  }
  std::optional<RowsView> view = ViewOf(*replica, version, said);
  if (view.has_value()) replica->NoteLookup(lookup_rows);
  return view;
}

void SayHowNew(const RowsView& rows, int64_t now_ns, Outcome* said) {
  said->set_life(rows.latest->life());
  const int64_t unchanged_ns = std::max<int64_t>(now_ns - rows.latest->changed_ns(), 0);
  said->set_unchanged_ms(static_cast<uint64_t>(unchanged_ns / kMillisecondNs));
}

void RefuseBroken(const absl::Status& why, Outcome* said) {
  Refuse(Outcome::BROKEN, absl::StrCat("rows on disk cannot be read: ", why.message()), said);
}

void RefuseDropped(Outcome* said) {
  Refuse(Outcome::NO_VERSION, "the version was dropped while its rows were read", said);
}

uint64_t AnswerBytes(const TableReplicas& tables, const v1::ServingLookupRequest& request) {
  const absl::StatusOr<RowType> type = FromProto(request.row_type());
  uint64_t bytes = 0;
  for (const v1::ServingLookupTable& table : request.tables()) {
    const std::shared_ptr<const TableReplica> replica =
        tables.Find(table.table(), ServedPartOf(table));
    if (replica == nullptr || !type.ok()) continue;
    const uint32_t rows = table.pooling() == v1::SERVED_ROWS ? table.ids() : table.bags();
    bytes += uint64_t{rows} * RowWireBytes(*type, replica->rows()->coder().dim()) +
             uint64_t{table.ids()} * (request.with_tiers() ? 2 : 1);
  }
  return bytes;
}

bool IsQuick(const TableReplicas& tables, const v1::ServingLookupRequest& request) {
  uint64_t floats = 0;
  for (const v1::ServingLookupTable& table : request.tables()) {
    floats += kFloatsOfATable + uint64_t{table.ids()} * kFloatsOfARow;
    if (floats > kQuickFloatsMax) return false;
    const std::shared_ptr<const TableReplica> replica =
        tables.Find(table.table(), ServedPartOf(table));
    if (replica == nullptr) continue;
    floats += uint64_t{std::max(table.ids(), table.bags())} * replica->rows()->coder().dim();
    if (floats > kQuickFloatsMax) return false;
    const std::optional<RowsView> view =
        request.version() == 0 ? replica->Latest() : replica->Version(request.version());
    if (view.has_value() && !view->InMemory()) return false;
  }
  return true;
}

absl::Status AnswerLookup(const TableReplicas& tables,
                          const std::function<absl::Status(absl::string_view)>& may_read,
                          const v1::ServingLookupRequest& request, v1::ServingLookupReply* reply) {
  HOTBED_RETURN_IF_ERROR(CheckLookup(request));
  HOTBED_ASSIGN_OR_RETURN(const RowType type, FromProto(request.row_type()));
  reply->set_version(request.version());
  std::vector<std::optional<RowsView>> admitted(request.tables_size());
  uint64_t row_bytes = 0, ids = 0;
  int number = 0;
  HOTBED_RETURN_IF_ERROR(ForEachTable(request, [&](const AskedTable& asked) {
    const int i = number++;
    Outcome& said = *reply->add_tables();
    admitted[i] = AdmitRows(tables, may_read, asked.table, asked.part, request.version(),
                            request.staleness_ms_max(), asked.age_ms_max, asked.bags.ids, &said);
    if (!admitted[i].has_value()) return absl::OkStatus();
    const uint32_t dim = admitted[i]->coder().dim();
    said.set_dim(dim);
    ids += asked.bags.ids;
    row_bytes += uint64_t{asked.bags.rows()} * RowWireBytes(type, dim);
    return absl::OkStatus();
  }));
  reply->mutable_rows()->resize(row_bytes);
  reply->mutable_exists()->resize(ids);
  auto* out = reinterpret_cast<uint8_t*>(reply->mutable_rows()->data());
  char* exists = reply->mutable_exists()->data();
  if (request.with_tiers()) reply->mutable_tiers()->resize(ids);
  char* tiers = request.with_tiers() ? reply->mutable_tiers()->data() : nullptr;
  number = 0;
  HOTBED_RETURN_IF_ERROR(ForEachTable(request, [&](const AskedTable& asked) {
    const int i = number++;
    const std::optional<RowsView>& rows = admitted[i];
    if (!rows.has_value()) return absl::OkStatus();
    const uint64_t bytes = uint64_t{asked.bags.rows()} * RowWireBytes(type, rows->coder().dim());
    const absl::Status read = AnswerRows(*rows, type, asked.ids, asked.bags, out, exists, tiers);
    if (!read.ok() || !rows->Holds()) {
      // The disk has failed, or the rows may be of several moments. They are taken back; the other
      // tables are answered.
      read.ok() ? RefuseDropped(reply->mutable_tables(i))
                : RefuseBroken(read, reply->mutable_tables(i));
      std::fill_n(out, bytes, 0);
      std::fill_n(exists, asked.bags.ids, 0);
      return absl::OkStatus();
    }
    out += bytes;
    exists += asked.bags.ids;
    if (tiers != nullptr) tiers += asked.bags.ids;
    return absl::OkStatus();
  }));
  const int64_t now_ns = tables.clock().NowNs();  // when all rows were read
  for (int i = 0; i < reply->tables_size() && request.version() == 0; ++i) {
    Outcome& said = *reply->mutable_tables(i);
    if (said.outcome() == Outcome::OK) SayHowNew(*admitted[i], now_ns, &said);
  }
  reply->mutable_rows()->resize(reinterpret_cast<const char*>(out) - reply->rows().data());
  reply->mutable_exists()->resize(exists - reply->exists().data());
  if (request.with_tiers()) reply->mutable_tiers()->resize(reply->exists().size());
  return absl::OkStatus();
}

}  // namespace hotbed
