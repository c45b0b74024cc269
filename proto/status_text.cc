#include "proto/status_text.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

struct CodeMeaning {
  v1::Code code;
  absl::StatusCode status;
  bool retriable;
};

constexpr CodeMeaning kMeanings[] = {
    {v1::OK, absl::StatusCode::kOk, false},
    {v1::WRONG_EPOCH, absl::StatusCode::kFailedPrecondition, true},
    {v1::UNKNOWN_SHARD, absl::StatusCode::kNotFound, true},
    {v1::INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument, false},
    {v1::OUT_OF_RANGE, absl::StatusCode::kOutOfRange, false},
    {v1::NAN_GRADIENT, absl::StatusCode::kInvalidArgument, false},
    {v1::UNKNOWN_SESSION, absl::StatusCode::kFailedPrecondition, false},
    {v1::FENCED, absl::StatusCode::kAborted, false},
    {v1::GAP, absl::StatusCode::kFailedPrecondition, true},
    {v1::RESOURCE_EXHAUSTED, absl::StatusCode::kResourceExhausted, true},
    {v1::READ_ONLY, absl::StatusCode::kUnavailable, true},
    {v1::UNAVAILABLE, absl::StatusCode::kUnavailable, true},
    {v1::CORRUPT, absl::StatusCode::kDataLoss, false},
    {v1::DEADLINE_EXCEEDED, absl::StatusCode::kDeadlineExceeded, false},
    {v1::INTERNAL, absl::StatusCode::kInternal, false},
    {v1::STEP_OVER, absl::StatusCode::kAborted, false},
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
