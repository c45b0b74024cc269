#include "serving/top_k_answer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/field_error.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "serving/lookup_answer.h"
#include "serving/rows/row_search.h"

namespace hotbed {
namespace {

// A row among the nearest, with its place in the set of their ids.
constexpr uint64_t kSearchRowBytes = 64;

struct TopKCounters {
  static TopKCounters& Get() {
    static auto* const counters = new TopKCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_top_k_rows_total",
               "Rows of served tables that were compared with vectors of top-k calls."};
  LatencyHistogram seconds{"hotbed_serving_top_k_seconds",
                           "From the begin of a top-k search of a served table to its end."};
};

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

absl::Status CheckVectors(const TableReplica& replica, const v1::ServingTopKRequest& request) {
  const uint32_t dim = replica.rows()->coder().dim();
  const uint64_t row_bytes = uint64_t{dim} * sizeof(float), bytes = request.vectors().size();
  const std::string thing = absl::StrCat("table \"", replica.name(), "\"");
  if (bytes == 0) {
    return FieldError(thing, "vectors", "empty",
                      absl::StrCat("1..", kServedTopKVectorsMax, " vectors of ", dim, " numbers"));
  }
  if (bytes % row_bytes != 0) {
    return FieldError(thing, "vectors", absl::StrCat(bytes, " bytes long"),
                      absl::StrCat("multiples of ", row_bytes, " bytes, since dim is ", dim));
  }
  const uint64_t count = bytes / row_bytes;
  if (count > kServedTopKVectorsMax) {
    return FieldError(thing, "vectors", absl::StrCat(count, " vectors long"),
                      absl::StrCat("1..", kServedTopKVectorsMax));
  }
  if (count * request.k() > kServedTopKRowsMax) {
    return FieldError(thing, "k", absl::StrCat(request.k(), " for ", count, " vectors"),
                      absl::StrCat("k times vectors at most ", kServedTopKRowsMax));
  }
  const std::vector<float> vectors = ValuesOf<float>(request.vectors());
  const auto bad = std::find_if(vectors.begin(), vectors.end(),
                                [](float element) { return !std::isfinite(element); });
  if (bad == vectors.end()) return absl::OkStatus();
  const auto at = static_cast<uint64_t>(bad - vectors.begin());
  return FieldError(thing, absl::StrCat("vectors[", at / dim, "][", at % dim, "]"),
                    absl::StrCat(*bad), "finite numbers");
}

void AddRows(const std::vector<std::vector<ScoredRow>>& nearest, v1::ServingTopKReply* reply) {
  for (const std::vector<ScoredRow>& rows : nearest) {
    reply->add_counts(static_cast<uint32_t>(rows.size()));
    for (const ScoredRow& row : rows) {
      reply->mutable_ids()->append(reinterpret_cast<const char*>(&row.id), sizeof(row.id));
      reply->mutable_scores()->append(reinterpret_cast<const char*>(&row.score), sizeof(row.score));
    }
  }
}

}  // namespace

void RegisterTopKMetrics() { TopKCounters::Get(); }

absl::Status CheckTopK(const TableReplicas& tables, const v1::ServingTopKRequest& request) {
  if (request.k() < 1 || request.k() > kServedTopKMax) {
    return FieldError("", "k", absl::StrCat(request.k()), absl::StrCat("1..", kServedTopKMax));
  }
  if (!v1::TopKMetric_IsValid(request.metric())) {
    return FieldError("", "metric", absl::StrCat(request.metric()), "0 (dot), 1 (cosine), 2 (l2)");
  }
  if (request.first_id() > request.last_id()) {
    return FieldError("", "first_id", absl::StrCat(request.first_id()),
                      absl::StrCat("at most last_id, ", request.last_id()));
  }
  const uint64_t id_bytes = request.ids().size();
  if (id_bytes % sizeof(uint64_t) != 0 || id_bytes / sizeof(uint64_t) > kServedTopKIdsMax) {
    return FieldError("", "ids", absl::StrCat(id_bytes, " bytes long"),
                      absl::StrCat("8 bytes per id, at most ", kServedTopKIdsMax, " ids"));
  }
  const std::shared_ptr<const TableReplica> replica =
      tables.Find(request.table(), ServedPartOf(request));
  return replica == nullptr ? absl::OkStatus() : CheckVectors(*replica, request);
}

uint64_t TopKBytes(const TableReplicas& tables, const v1::ServingTopKRequest& request) {
  const std::shared_ptr<const TableReplica> replica =
      tables.Find(request.table(), ServedPartOf(request));
  if (replica == nullptr) return 0;
  const uint64_t dim = replica->rows()->coder().dim();
  const uint64_t vectors = request.vectors().size() / sizeof(float) / dim;
  // Vectors as they came, and as fp64.
  return vectors * request.k() * kSearchRowBytes + 3 * request.vectors().size() +
         request.ids().size();
}

absl::Status AnswerTopK(const TableReplicas& tables,
                        const std::function<absl::Status(absl::string_view)>& may_read,
                        const v1::ServingTopKRequest& request,
                        absl::FunctionRef<absl::Status()> go_on, v1::ServingTopKReply* reply) {
  HOTBED_RETURN_IF_ERROR(CheckTopK(tables, request));
  const int64_t begin_ns = Clock::Real()->NowNs();
  const absl::Cleanup timed = [begin_ns] {
    TopKCounters::Get().seconds.RecordNs(Clock::Real()->NowNs() - begin_ns);
  };
  reply->set_version(request.version());
  v1::ServingTableReply* const said = reply->mutable_table();
  const std::optional<RowsView> rows =
      AdmitRows(tables, may_read, request.table(), ServedPartOf(request), request.version(),
                request.staleness_ms_max(), /*age_ms_max=*/0, /*lookup_rows=*/0, said);
  if (!rows.has_value()) return absl::OkStatus();
  said->set_dim(rows->coder().dim());
  const std::vector<float> vectors = ValuesOf<float>(request.vectors());
  const std::vector<uint64_t> ids = ValuesOf<uint64_t>(request.ids());
  RowQuery query = {.metric = static_cast<RowMetric>(request.metric()),
                    .k = request.k(),
                    .vectors = vectors,
                    .first_id = request.first_id(),
                    .last_id = request.last_id()};
  if (request.only_ids()) query.only_ids = ids;
  RowSearch search(*rows, query);
  const absl::Status searched = search.Run(go_on);
  if (absl::IsUnavailable(searched)) {
    RefuseBroken(searched, said);
    return absl::OkStatus();
  }
  HOTBED_RETURN_IF_ERROR(searched);
  TopKCounters::Get().rows.Add(search.rows_read());
  if (!rows->Holds()) {
    RefuseDropped(said);
    return absl::OkStatus();
  }
  if (request.version() == 0) SayHowNew(*rows, tables.clock().NowNs(), said);
  reply->set_rows_read(search.rows_read());
  AddRows(search.Take(), reply);
  return absl::OkStatus();
}

}  // namespace hotbed
