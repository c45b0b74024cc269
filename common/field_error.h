// A refusal that names a field, its value and what is allowed, in its text and for programs.
#ifndef HOTBED_COMMON_FIELD_ERROR_H_
#define HOTBED_COMMON_FIELD_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {

inline constexpr char kErrorField[] = "hotbed/field";
inline constexpr char kErrorValue[] = "hotbed/value";
inline constexpr char kErrorLimit[] = "hotbed/limit";

// `error` with the three as payloads.
inline absl::Status WithField(absl::Status error, absl::string_view field, absl::string_view value,
                              absl::string_view limit) {
  error.SetPayload(kErrorField, absl::Cord(field));
  error.SetPayload(kErrorValue, absl::Cord(value));
  error.SetPayload(kErrorLimit, absl::Cord(limit));
  return error;
}

// InvalidArgument "[thing: ]FIELD is VALUE; allowed: LIMIT", with the three as payloads.
inline absl::Status FieldError(absl::string_view thing, absl::string_view field,
                               absl::string_view value, absl::string_view limit) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(thing, thing.empty() ? "" : ": ", field,
                                                           " is ", value, "; allowed: ", limit)),
                   field, value, limit);
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_FIELD_ERROR_H_
