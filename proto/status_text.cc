#include "proto/status_text.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

struct CodeMeaning {
  v1::Code code;
  absl::StatusCode status;
};

constexpr CodeMeaning kMeanings[] = {
    {v1::OK, absl::StatusCode::kOk},
    {v1::WRONG_EPOCH, absl::StatusCode::kFailedPrecondition},
    {v1::UNKNOWN_SHARD, absl::StatusCode::kNotFound},
    {v1::INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument},
    {v1::OUT_OF_RANGE, absl::StatusCode::kOutOfRange},
    {v1::NAN_GRADIENT, absl::StatusCode::kInvalidArgument},
    {v1::UNKNOWN_SESSION, absl::StatusCode::kFailedPrecondition},
    {v1::FENCED, absl::StatusCode::kAborted},
    {v1::GAP, absl::StatusCode::kFailedPrecondition},
    {v1::RESOURCE_EXHAUSTED, absl::StatusCode::kResourceExhausted},
    {v1::READ_ONLY, absl::StatusCode::kUnavailable},
    {v1::UNAVAILABLE, absl::StatusCode::kUnavailable},
    {v1::CORRUPT, absl::StatusCode::kDataLoss},
    {v1::DEADLINE_EXCEEDED, absl::StatusCode::kDeadlineExceeded},
    {v1::INTERNAL, absl::StatusCode::kInternal},
    {v1::STEP_OVER, absl::StatusCode::kAborted},
    {v1::PERMISSION_DENIED, absl::StatusCode::kPermissionDenied},
};
static_assert(sizeof(kMeanings) / sizeof(kMeanings[0]) == v1::Code_ARRAYSIZE,
              "a code without a meaning");

const CodeMeaning* Find(v1::Code code) {
  for (const CodeMeaning& meaning : kMeanings) {
    if (meaning.code == code) return &meaning;
  }
  return nullptr;
}

}  // namespace

absl::StatusCode StatusCodeOf(v1::Code code) {
  const CodeMeaning* const meaning = Find(code);
  return meaning != nullptr ? meaning->status : absl::StatusCode::kUnknown;
}

absl::string_view CodeName(v1::Code code) {
  return Find(code) != nullptr ? absl::string_view(v1::Code_Name(code)) : "UNKNOWN_CODE";
}

absl::Status ToStatus(v1::Code code, absl::string_view detail) {
  if (code == v1::OK) return absl::OkStatus();
  return absl::Status(StatusCodeOf(code), absl::StrCat(CodeName(code), ": ", detail));
}

}  // namespace hotbed
