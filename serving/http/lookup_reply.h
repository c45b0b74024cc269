// Answers to lookups by HTTP, out of those that gRPC gives. Pure functions.
#ifndef HOTBED_SERVING_HTTP_LOOKUP_REPLY_H_
#define HOTBED_SERVING_HTTP_LOOKUP_REPLY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "admin/http_request.h"
#include "proto/serving.pb.h"
#include "serving/http/lookup_body.h"

namespace hotbed {

enum class LookupForm { kArrays, kBase64, kOctets };

// The most that LookupResponse takes for the rows of a table of `dim`.
uint64_t ResponseBytes(const LookupBody& body, uint32_t dim, LookupForm form);

// `reply` has one table, whose outcome is OK; body.version is the name of the version whose rows
// these are.
HttpResponse LookupResponse(const v1::ServingLookupReply& reply, const LookupBody& body,
                            LookupForm form, absl::string_view table, absl::string_view server);

// One table of an answer to several: as LookupResponse has it, which is no octets, or `error`, or
// both.
struct TableText {
  absl::Status error;
  std::string table;
  std::string text;            // of an answer
  std::vector<uint8_t> known;  // ServingRows::known, if the answer has an error besides
  bool base64 = false;
};
HttpResponse LookupsResponse(absl::Span<const TableText> tables);

// float or double: the shortest text that reads as the same number. JSON has no NaN and no
// infinity: they are null.
template <typename Number>
void AppendNumber(Number value, std::string* text);

// A payload of an error: milliseconds in digits, after which a request may be sent again.
inline constexpr char kErrorRetryMs[] = "hotbed/retry_ms";

// A document {"error": ...} with text and, where `error` has them, field, value and limit
// (common/field_error.h) and retry_ms; with headers that tell the client what to do.
HttpResponse ErrorResponse(int code, const absl::Status& error);
// The code that stands for a status.
int HttpCodeOf(absl::StatusCode code);

// A field of these documents, for the OpenAPI document.
struct ReplyField {
  const char* name;
  const char* schema;  // JSON Schema
  const char* about;
};
absl::Span<const ReplyField> LookupReplyFields();
// With partial, of a table in parts of which some were not answered, besides those.
absl::Span<const ReplyField> PartFields();
absl::Span<const ReplyField> OctetHeaderFields();
absl::Span<const ReplyField> ErrorFields();

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_LOOKUP_REPLY_H_
