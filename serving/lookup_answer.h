// Answers one lookup from the tables that are served here; free of gRPC. Thread-safe.
#ifndef HOTBED_SERVING_LOOKUP_ANSWER_H_
#define HOTBED_SERVING_LOOKUP_ANSWER_H_

#include <cstdint>
#include <functional>

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

// As CheckLookup. `may_read` may be empty.
absl::Status AnswerLookup(const TableReplicas& tables,
                          const std::function<absl::Status(absl::string_view table)>& may_read,
                          const v1::ServingLookupRequest& request, v1::ServingLookupReply* reply);

}  // namespace hotbed

#endif  // HOTBED_SERVING_LOOKUP_ANSWER_H_
