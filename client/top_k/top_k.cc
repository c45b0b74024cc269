// TopK: checks the arguments, then asks the shards (top_k_call.h).
#include "hotbed/top_k.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/top_k/top_k_call.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"

namespace hotbed {
namespace {

absl::Status CheckVectors(const TableOptions& table, absl::Span<const float> vectors) {
  if (vectors.empty() || vectors.size() % table.dim != 0) {
    return absl::InvalidArgumentError(absl::StrCat("vectors has ", vectors.size(),
                                                   " elements, allowed: multiples of ", table.dim,
                                                   ", the dim of table ", table.name));
  }
  if (vectors.size() / table.dim > kTopKVectorsMax) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", vectors.size() / table.dim,
                                                   " vectors, allowed: 1..", kTopKVectorsMax));
  }
  const auto bad = std::find_if(vectors.begin(), vectors.end(),
                                [](float element) { return !std::isfinite(element); });
  if (bad == vectors.end()) return absl::OkStatus();
  const size_t at = static_cast<size_t>(bad - vectors.begin());
  return absl::InvalidArgumentError(absl::StrCat("element ", at % table.dim, " of vector ",
                                                 at / table.dim, " is ", *bad,
                                                 ", allowed: finite numbers"));
}

absl::Status CheckIds(const TableOptions& table, const TopKOptions& options) {
  if (options.first_id > options.last_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_id is ", options.first_id, ", allowed: at most last_id, ", options.last_id));
  }
  if (!options.only_ids.has_value()) return absl::OkStatus();
  if (options.only_ids->size() > kTopKIdsMax) {
    return absl::InvalidArgumentError(absl::StrCat("only_ids has ", options.only_ids->size(),
                                                   " ids, allowed: at most ", kTopKIdsMax));
  }
  for (const uint64_t id : *options.only_ids) {
    if (table.hashed || id < table.rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("only_ids: id ", id, " is outside table ",
                                                   table.name, ", allowed: 0..", table.rows - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(const TableOptions& table, absl::Span<const float> vectors, uint32_t k,
                       const TopKOptions& options) {
  if (IsComposed(table)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name, " is composed: no server holds its rows, allowed: plain tables"));
  }
  if (k < 1 || k > kTopKMax) {
    return absl::InvalidArgumentError(absl::StrCat("k is ", k, ", allowed: 1..", kTopKMax));
  }
  if (options.metric > RowMetric::kL2) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric is ", static_cast<int>(options.metric), ", allowed: dot, cosine, l2"));
  }
  HOTBED_RETURN_IF_ERROR(CheckVectors(table, vectors));
  if (const size_t count = vectors.size() / table.dim; count * k > kTopKRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat(count, " vectors with k ", k, " are ", count * k,
                                                   " rows, allowed: at most ", kTopKRowsMax,
                                                   " per call; split the vectors"));
  }
  return CheckIds(table, options);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<ScoredRow>>> TopK(Client* client, const Table* table,
                                                         absl::Span<const float> vectors,
                                                         uint32_t k, const TopKOptions& options) {
  HOTBED_RETURN_IF_ERROR(CheckCall(table->options(), vectors, k, options));
  auto* const impl = static_cast<ClientImpl*>(client);
  const TopKCall::Parts parts = {impl->map(), impl->follower(), impl->KeptWholeTables(),
                                 impl->clock()};
  const int64_t deadline_ns = impl->DeadlineNs(options.deadline);
  for (;;) {
    TopKCall call(parts, table->options(), vectors, k, options, deadline_ns);
    auto rows = call.Run();
    // Some rows would be there twice: from before a merge, and from after it.
    const bool again = absl::IsAborted(rows.status()) && impl->clock()->NowNs() < deadline_ns;
    if (!again) return rows;
  }
}

}  // namespace hotbed
