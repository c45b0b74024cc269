#include "security/call_access.h"

#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"

namespace hotbed {
namespace {

constexpr char kBearer[] = "Bearer ";
// Properties that gRPC finds in a certificate.
constexpr char kSubjectNames[] = "peer_uri";
constexpr char kCommonName[] = "x509_common_name";

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

Caller CallerOfCertificate(const grpc::AuthContext& context) {
  Caller caller;
  for (const grpc::string_ref& name : context.FindPropertyValues(kCommonName)) {
    caller.name = std::string(View(name));
  }
  for (const grpc::string_ref& uri : context.FindPropertyValues(kSubjectNames)) {
    absl::string_view role = View(uri);
    if (!absl::ConsumePrefix(&role, kRoleUri)) continue;
    if (const auto known = AccessRoleOf(role); known.ok()) caller.roles.push_back(*known);
  }
  return caller;
}

absl::Status Unknown(const Caller& caller, absl::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("caller \"", caller.name, "\": ", why));
}

}  // namespace

class CallAccess::Tables final : public TableAccess {
 public:
  Tables(std::shared_ptr<CallAccess> access, std::shared_ptr<const AccessRules> rules,
         Caller caller, std::string method)
      : access_(std::move(access)),
        rules_(std::move(rules)),
        caller_(std::move(caller)),
        method_(std::move(method)) {}

  absl::Status Check(absl::string_view table) const override {
    absl::Status checked = rules_->CheckTable(caller_, method_, table);
    if (!checked.ok()) access_->refusals_.Note(checked.message());
    return checked;
  }

  absl::Status Refuse(absl::string_view what) const override {
    absl::Status refused = rules_->RefuseBeyondTables(caller_, method_, what);
    access_->refusals_.Note(refused.message());
    return refused;
  }

 private:
  const std::shared_ptr<CallAccess> access_;
  const std::shared_ptr<const AccessRules> rules_;
  const Caller caller_;
  const std::string method_;
};

CallAccess::CallAccess(std::shared_ptr<WatchedRules> rules, const std::string& port)
    : rules_(std::move(rules)), refusals_(port) {}

std::shared_ptr<CallAccess> CallAccess::Of(const ServerSecurity& security,
                                           const std::string& port) {
  if (!security.files.any()) return nullptr;
  return std::shared_ptr<CallAccess>(new CallAccess(security.rules, port));
}

absl::StatusOr<Caller> CallAccess::CallerOf(const AccessRules& rules, const Metadata& metadata,
                                            const grpc::AuthContext& context) {
  const auto token = metadata.find("authorization");
  if (token == metadata.end()) {
    Caller caller = CallerOfCertificate(context);
    if (caller.roles.empty()) {
      return Unknown(caller, "its certificate has no role, and it has no token");
    }
    return caller;
  }
  absl::string_view text = View(token->second);
  std::optional<Caller> found;
  if (absl::ConsumePrefix(&text, kBearer)) found = rules.CallerOfToken(text);
  if (!found.has_value()) return Unknown({}, "its token is not known");
  return *std::move(found);
}

grpc::Status CallAccess::Begin(const Metadata& metadata, const grpc::AuthContext& context) {
  const std::shared_ptr<const AccessRules> rules = rules_->Get(Clock::Real()->NowNs());
  const auto path = metadata.find(":path");
  absl::string_view method = path == metadata.end() ? "" : View(path->second);
  method = method.substr(method.rfind('/') + 1);
  const absl::StatusOr<Caller> caller = CallerOf(*rules, metadata, context);
  if (!caller.ok()) {
    const std::string text =
        absl::StrCat(absl::CEscape(method.substr(0, 80)), " by ", caller.status().message());
    refusals_.Note(text);
    return {grpc::StatusCode::UNAUTHENTICATED, text};
  }
  const absl::Status checked = rules->Check(*caller, method);
  if (checked.ok()) return grpc::Status::OK;
  refusals_.Note(checked.message());
  return {grpc::StatusCode::PERMISSION_DENIED, std::string(checked.message())};
}

absl::Status CallAccess::CheckToken(absl::string_view token, absl::string_view method,
                                    absl::string_view table) {
  const std::shared_ptr<const AccessRules> rules = rules_->Get(Clock::Real()->NowNs());
  const std::optional<Caller> caller = rules->CallerOfToken(token);
  absl::Status checked;
  if (!caller.has_value()) {
    checked = absl::UnauthenticatedError(absl::StrCat(
        method, " by a caller ",
        token.empty() ? "without a token; give one of --access-rules, as 'Authorization: Bearer "
                        "TOKEN'"
                      : "whose token is not known"));
  } else {
    checked =
        table.empty() ? rules->Check(*caller, method) : rules->CheckTable(*caller, method, table);
  }
  if (!checked.ok()) refusals_.Note(checked.message());
  return checked;
}

std::unique_ptr<TableAccess> CallAccess::TablesOf(const grpc::ServerContextBase& context,
                                                  absl::string_view method) {
  std::shared_ptr<const AccessRules> rules = rules_->Get(Clock::Real()->NowNs());
  if (!rules->names_tables()) return nullptr;
  // The call has begun, so the rules knew its caller. One that they have just forgotten has no role
  // and may use no table.
  absl::StatusOr<Caller> caller =
      CallerOf(*rules, context.client_metadata(), *context.auth_context());
  if (caller.ok() && rules->AllTables(*caller, method)) return nullptr;
  return std::make_unique<Tables>(shared_from_this(), std::move(rules),
                                  caller.ok() ? *std::move(caller) : Caller(), std::string(method));
}

TableAccessOf TableAccessBy(std::shared_ptr<CallAccess> access) {
  if (access == nullptr) return nullptr;
  return [access = std::move(access)](const grpc::ServerContextBase& context,
                                      absl::string_view method) {
    return access->TablesOf(context, method);
  };
}

}  // namespace hotbed
