// Answers one search for the nearest rows of a table that is served here; free of gRPC.
// Thread-safe.
#ifndef HOTBED_SERVING_TOP_K_ANSWER_H_
#define HOTBED_SERVING_TOP_K_ANSWER_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/serving.pb.h"
#include "serving/table_replicas.h"

namespace hotbed {

constexpr uint32_t kServedTopKMax = 16'384;
constexpr uint32_t kServedTopKVectorsMax = 1'024;
constexpr uint32_t kServedTopKRowsMax = 262'144;  // k times vectors
constexpr uint32_t kServedTopKIdsMax = 1'000'000;

// So that metrics are there before the first call.
void RegisterTopKMetrics();

// InvalidArgument names field, value and limit. Tables that are not here are not looked at.
absl::Status CheckTopK(const TableReplicas& tables, const v1::ServingTopKRequest& request);

// At least what a search and its answer take; of a request that has passed CheckTopK.
uint64_t TopKBytes(const TableReplicas& tables, const v1::ServingTopKRequest& request);

// As CheckTopK; an error of `go_on`, which is asked often. `may_read` may be empty.
absl::Status AnswerTopK(const TableReplicas& tables,
                        const std::function<absl::Status(absl::string_view table)>& may_read,
                        const v1::ServingTopKRequest& request,
                        absl::FunctionRef<absl::Status()> go_on, v1::ServingTopKReply* reply);

}  // namespace hotbed

#endif  // HOTBED_SERVING_TOP_K_ANSWER_H_
