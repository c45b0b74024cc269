// Answers one lookup from the tables that are served here; free of gRPC. Thread-safe.
#ifndef HOTBED_SERVING_LOOKUP_ANSWER_H_
#define HOTBED_SERVING_LOOKUP_ANSWER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/serving.pb.h"
#include "serving/table_replicas.h"

namespace hotbed {

// InvalidArgument: the request contradicts itself, or has no tables.
absl::Status CheckLookup(const v1::ServingLookupRequest& request);

// At least what the answer to `request`, which has passed CheckLookup, takes; tables that are not
// here count nothing.
uint64_t AnswerBytes(const TableReplicas& tables, const v1::ServingLookupRequest& request);

// Whether the answer to `request`, which has passed CheckLookup, takes less time than the waking of
// a thread: few rows, all of them in memory.
bool IsQuick(const TableReplicas& tables, const v1::ServingLookupRequest& request);

// As CheckLookup. `may_read` may be empty.
absl::Status AnswerLookup(const TableReplicas& tables,
                          const std::function<absl::Status(absl::string_view table)>& may_read,
                          const v1::ServingLookupRequest& request, v1::ServingLookupReply* reply);

// The rows of a part of `table`, newest or of a version, if they may be answered: the part is here,
// loaded, allowed to the caller and not too old. Counts `lookup_rows` as asked of it. Nothing:
// `said` has the outcome, and why.
std::optional<RowsView> AdmitRows(
    const TableReplicas& tables,
    const std::function<absl::Status(absl::string_view table)>& may_read, uint32_t table,
    const ServedPart& part, uint64_t version, uint64_t staleness_ms_max, uint64_t age_ms_max,
    uint64_t lookup_rows, v1::ServingTableReply* said);
// Says how new the newest rows are that were read by now, at `now_ns` of the copies' clock.
void SayHowNew(const RowsView& rows, int64_t now_ns, v1::ServingTableReply* said);
// Says that this server's disk has failed under the table, so that other servers are asked.
void RefuseBroken(const absl::Status& why, v1::ServingTableReply* said);
// Says that the rows of a version may be of several moments: it was dropped meanwhile.
void RefuseDropped(v1::ServingTableReply* said);

}  // namespace hotbed

#endif  // HOTBED_SERVING_LOOKUP_ANSWER_H_
