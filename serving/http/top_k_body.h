// Body and answer of POST /v1/tables/{name}:topk. Pure functions.
#ifndef HOTBED_SERVING_HTTP_TOP_K_BODY_H_
#define HOTBED_SERVING_HTTP_TOP_K_BODY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "admin/http_request.h"
#include "proto/serving.pb.h"
#include "serving/http/body_field.h"
#include "serving/http/lookup_reply.h"

namespace hotbed {

struct TopKBody {
  std::vector<float> vectors;            // one after another
  std::vector<uint64_t> vector_lengths;  // empty: they came in base64
  uint32_t k = 10;
  v1::TopKMetric metric = v1::TOP_K_DOT;
  bool only = false;  // only the rows of only_ids
  std::vector<uint64_t> only_ids;
  uint64_t first_id = 0;
  uint64_t last_id = ~uint64_t{0};
  uint32_t timeout_ms = 10'000;
  uint32_t staleness_ms_max = 0;  // 0: as the table has it
  std::string version;            // empty: the newest rows
};
absl::Span<const BodyField> TopKFields();

// Errors as of ParseLookupBody. `entries_max` is the most numbers of `vectors` and `only_ids` each.
absl::StatusOr<TopKBody> ParseTopKBody(absl::string_view json, uint64_t entries_max);

// The request for a table of `dim`. InvalidArgument: a vector is of another length. All else is
// checked by whoever answers it.
absl::StatusOr<v1::ServingTopKRequest> TopKRequestOf(const TopKBody& body, uint32_t table,
                                                     uint32_t dim, absl::string_view name);

// The most that TopKResponse takes.
uint64_t TopKResponseBytes(const TopKBody& body, uint32_t dim);

// `reply` is OK. `version`: the name of the version whose rows these are; empty: the newest ones.
HttpResponse TopKResponse(const v1::ServingTopKReply& reply, absl::string_view table,
                          absl::string_view server, absl::string_view version);
absl::Span<const ReplyField> TopKReplyFields();

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_TOP_K_BODY_H_
