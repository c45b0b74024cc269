// Decides about the calls to one port, by the rules of the process. Refusals are counted and
// logged. Thread-safe.
#ifndef HOTBED_SECURITY_CALL_ACCESS_H_
#define HOTBED_SECURITY_CALL_ACCESS_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "security/access.h"
#include "security/refusals.h"
#include "security/server_security.h"
#include "security/table_access.h"

namespace hotbed {

class CallAccess : public std::enable_shared_from_this<CallAccess> {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  // `port` names the port in the log and in metrics: "data". Null: without TLS nobody is asked who
  // calls.
  static std::shared_ptr<CallAccess> Of(const ServerSecurity& security, const std::string& port);

  // Whether a call may begin, by its token or else by the roles of its certificate.
  grpc::Status Begin(const Metadata& metadata, const grpc::AuthContext& context);
  // The same for a request of HTTP, which can show a token alone, and whether it may use `table`;
  // empty: the method names none. Unauthenticated or PermissionDenied, counted and logged.
  absl::Status CheckToken(absl::string_view token, absl::string_view method,
                          absl::string_view table);
  // As TableAccessOf.
  std::unique_ptr<TableAccess> TablesOf(const grpc::ServerContextBase& context,
                                        absl::string_view method);

 private:
  class Tables;

  CallAccess(std::shared_ptr<WatchedRules> rules, const std::string& port);
  // Unauthenticated: nobody that the rules know.
  static absl::StatusOr<Caller> CallerOf(const AccessRules& rules, const Metadata& metadata,
                                         const grpc::AuthContext& context);

  const std::shared_ptr<WatchedRules> rules_;
  Refusals refusals_;
};

// Empty where `access` is null: every caller may use every table.
TableAccessOf TableAccessBy(std::shared_ptr<CallAccess> access);

}  // namespace hotbed

#endif  // HOTBED_SECURITY_CALL_ACCESS_H_
