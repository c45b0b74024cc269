#include "security/server_credentials.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"

namespace hotbed {
namespace {

constexpr char kBearer[] = "Bearer ";
// Properties that gRPC finds in a certificate.
constexpr char kSubjectNames[] = "peer_uri";
constexpr char kCommonName[] = "x509_common_name";

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// Decides each call when it begins.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  Gate(std::shared_ptr<WatchedRules> rules, const std::string& port)
      : rules_(std::move(rules)),
        port_(port),
        refused_("hotbed_access_refused_total", "Calls refused for lack of a role or token.",
                 {{"port", port}}) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const std::shared_ptr<const AccessRules> rules = rules_->Get(Clock::Real()->NowNs());
    const auto path = metadata.find(":path");
    absl::string_view method = path == metadata.end() ? "" : View(path->second);
    method = method.substr(method.rfind('/') + 1);
    Caller caller;
    std::string unknown;
    const auto token = metadata.find("authorization");
    if (token != metadata.end()) {
      absl::string_view text = View(token->second);
      consumed->emplace("authorization", std::string(text));
      std::optional<Caller> found;
      if (absl::ConsumePrefix(&text, kBearer)) found = rules->CallerOfToken(text);
      if (found.has_value()) caller = *std::move(found);
      if (caller.roles.empty()) unknown = "its token is not known";
    } else {
      caller = CallerOfCertificate(*context);
      if (caller.roles.empty()) unknown = "its certificate has no role, and it has no token";
    }
    if (unknown.empty()) {
      const absl::Status checked = rules->Check(caller, method);
      if (checked.ok()) return grpc::Status::OK;
      return Refuse(grpc::StatusCode::PERMISSION_DENIED, std::string(checked.message()));
    }
    return Refuse(grpc::StatusCode::UNAUTHENTICATED,
                  absl::StrCat("caller \"", caller.name, "\" of ", method, ": ", unknown));
  }

 private:
  static Caller CallerOfCertificate(const grpc::AuthContext& context) {
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

  grpc::Status Refuse(grpc::StatusCode code, const std::string& text) {
    refused_.Add(1);
    HOTBED_LOG_EVERY_S(Warning, 1) << "access refused on the " << port_ << " port: " << text;
    return {code, text};
  }

  const std::shared_ptr<WatchedRules> rules_;
  const std::string port_;
  Counter refused_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const ServerSecurity& security,
                                                             const std::string& port) {
  if (!security.files.any()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          security.files.key, security.files.certificate, security.files.authority, kLookEveryS));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> made = grpc::experimental::TlsServerCredentials(options);
  made->SetAuthMetadataProcessor(std::make_shared<Gate>(security.rules, port));
  return made;
}

}  // namespace hotbed
