// The tables that a caller may use one method with, where the rules limit them.
#ifndef HOTBED_SECURITY_TABLE_ACCESS_H_
#define HOTBED_SECURITY_TABLE_ACCESS_H_

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// Immutable.
class TableAccess {
 public:
  virtual ~TableAccess() = default;
  // OK, or PermissionDenied with the caller, the method, the table and the rule. A refusal is
  // counted and logged.
  virtual absl::Status Check(absl::string_view table) const = 0;
  // The same of what concerns more than some tables, such as a checkpoint: `what` follows the
  // method's name. Never OK, since the rules limit the caller.
  virtual absl::Status Refuse(absl::string_view what) const = 0;
};

// Those of the caller of a call that has begun, such as of "Pull". Null: every table. Rules that
// change later end the connections of the calls that began before, so the answer holds as long as
// the call. Thread-safe.
using TableAccessOf = std::function<std::unique_ptr<TableAccess>(
    const grpc::ServerContextBase& context, absl::string_view method)>;

}  // namespace hotbed

#endif  // HOTBED_SECURITY_TABLE_ACCESS_H_
