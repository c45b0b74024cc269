#include "serving/lookup_answer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/types.h"

namespace hotbed {
namespace {

using Outcome = v1::ServingTableReply;

// Rows ahead whose part of the index comes to the cache.
constexpr uint32_t kAhead = 8;
constexpr int kTablesMax = 1024;

struct LookupCounters {
  static LookupCounters& Get() {
    static auto* const counters = new LookupCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_lookup_rows_total", "Rows that lookups asked serving replicas for."};
  Counter missing{"hotbed_serving_missing_rows_total",
                  "Rows among those that do not exist; the answer says so."};
  Counter refused{
      "hotbed_serving_refused_tables_total",
      "Tables of lookups that were refused: not served here, still loading, too old, or "
      "not allowed to the caller."};
};

}  // namespace

absl::Status CheckLookup(const v1::ServingLookupRequest& request) {
  if (request.tables_size() < 1 || request.tables_size() > kTablesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("tables has ", request.tables_size(), " entries, allowed: 1..", kTablesMax));
  }
  uint64_t ids = 0;
  for (const v1::ServingLookupTable& table : request.tables()) ids += table.ids();
  if (ids * sizeof(uint64_t) == request.ids().size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tables name ", ids,
                                                 " ids of 8 bytes, the field ids has ",
                                                 request.ids().size(), " bytes"));
}

namespace {

void Refuse(Outcome::Outcome outcome, std::string detail, Outcome* said) {
  LookupCounters::Get().refused.Add(1);
  said->set_outcome(outcome);
  said->set_detail(std::move(detail));
}

// Null: refused.
std::shared_ptr<const TableReplica> Admit(
    const TableReplicas& tables, const std::function<absl::Status(absl::string_view)>& may_read,
    uint32_t table, uint64_t staleness_ms_max, Outcome* said) {
  std::shared_ptr<const TableReplica> replica = tables.Find(table);
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
  if (!replica->ready()) {
    Refuse(Outcome::LOADING,
           absl::StrCat("table ", replica->name(),
                        " is being loaded here: ", replica->rows()->rows(), " rows so far"),
           said);
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

// Writes rows and flags of `count` ids; zeros are there already.
void ReadRows(const ServedRows& rows, RowType type, const char* ids, uint32_t count, char* out,
              char* exists) {
  const uint32_t dim = rows.coder().dim();
  const uint64_t row_bytes = RowWireBytes(type, dim);
  std::vector<float> scratch(dim);
  const auto id_of = [ids](uint32_t i) {
    uint64_t id = 0;
    std::memcpy(&id, ids + uint64_t{i} * sizeof(id), sizeof(id));
    return id;
  };
  uint64_t missing = 0;
  const ServedRows::Reader reader(rows);
  for (uint32_t i = 0; i < std::min(kAhead, count); ++i) reader.Prefetch(id_of(i));
  for (uint32_t i = 0; i < count; ++i, out += row_bytes) {
    if (i + kAhead < count) reader.Prefetch(id_of(i + kAhead));
    const uint8_t* const row = reader.Find(id_of(i));
    if (row == nullptr) {
      ++missing;
      continue;
    }
    rows.coder().Answer(row, type, scratch.data(), reinterpret_cast<uint8_t*>(out));
    exists[i] = 1;
  }
  LookupCounters::Get().rows.Add(count);
  if (missing > 0) LookupCounters::Get().missing.Add(missing);
}

}  // namespace

uint64_t AnswerBytes(const TableReplicas& tables, const v1::ServingLookupRequest& request) {
  const absl::StatusOr<RowType> type = FromProto(request.row_type());
  uint64_t bytes = 0;
  for (const v1::ServingLookupTable& table : request.tables()) {
    const std::shared_ptr<const TableReplica> replica = tables.Find(table.table());
    if (replica == nullptr || !type.ok()) continue;
    bytes += uint64_t{table.ids()} * (RowWireBytes(*type, replica->rows()->coder().dim()) + 1);
  }
  return bytes;
}

absl::Status AnswerLookup(const TableReplicas& tables,
                          const std::function<absl::Status(absl::string_view)>& may_read,
                          const v1::ServingLookupRequest& request, v1::ServingLookupReply* reply) {
  HOTBED_RETURN_IF_ERROR(CheckLookup(request));
  HOTBED_ASSIGN_OR_RETURN(const RowType type, FromProto(request.row_type()));
  std::vector<std::shared_ptr<const ServedRows>> admitted(request.tables_size());
  uint64_t row_bytes = 0, rows = 0;
  for (int i = 0; i < request.tables_size(); ++i) {
    const v1::ServingLookupTable& asked = request.tables(i);
    const auto replica =
        Admit(tables, may_read, asked.table(), request.staleness_ms_max(), reply->add_tables());
    if (replica == nullptr) continue;
    admitted[i] = replica->rows();
    const uint32_t dim = admitted[i]->coder().dim();
    reply->mutable_tables(i)->set_dim(dim);
    rows += asked.ids();
    row_bytes += uint64_t{asked.ids()} * RowWireBytes(type, dim);
  }
  reply->mutable_rows()->resize(row_bytes);
  reply->mutable_exists()->resize(rows);
  const char* ids = request.ids().data();
  char* out = reply->mutable_rows()->data();
  char* exists = reply->mutable_exists()->data();
  for (int i = 0; i < request.tables_size(); ++i) {
    const uint32_t count = request.tables(i).ids();
    if (admitted[i] != nullptr) {
      ReadRows(*admitted[i], type, ids, count, out, exists);
      out += uint64_t{count} * RowWireBytes(type, admitted[i]->coder().dim());
      exists += count;
    }
    ids += uint64_t{count} * sizeof(uint64_t);
  }
  return absl::OkStatus();
}

}  // namespace hotbed
