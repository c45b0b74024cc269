// Early return on a failed absl::Status or StatusOr.
#ifndef HOTBED_COMMON_STATUS_MACROS_H_
#define HOTBED_COMMON_STATUS_MACROS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define HOTBED_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status hotbed_status_ = (expr);            \
    if (!hotbed_status_.ok()) return hotbed_status_; \
  } while (false)

#define HOTBED_MACRO_CAT_INNER(a, b) a##b
#define HOTBED_MACRO_CAT(a, b) HOTBED_MACRO_CAT_INNER(a, b)
#define HOTBED_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return std::move(tmp).status();     \
  lhs = std::move(tmp).value()
#define HOTBED_ASSIGN_OR_RETURN(lhs, expr) \
  HOTBED_ASSIGN_OR_RETURN_IMPL(HOTBED_MACRO_CAT(hotbed_or_, __LINE__), lhs, expr)

#endif  // HOTBED_COMMON_STATUS_MACROS_H_
