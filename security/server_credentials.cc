#include "security/server_credentials.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "security/call_access.h"
#include "security/handshake_refusals.h"

namespace hotbed {
namespace {

// Decides each call when it begins.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  explicit Gate(std::shared_ptr<CallAccess> access) : access_(std::move(access)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return access_->Begin(metadata, *context);
  }

 private:
  const std::shared_ptr<CallAccess> access_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const ServerSecurity& security,
                                                             std::shared_ptr<CallAccess> access) {
  if (access == nullptr) return grpc::InsecureServerCredentials();
  TellHandshakeRefusals();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          security.files.key, security.files.certificate, security.files.authority, kLookEveryS));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> made = grpc::experimental::TlsServerCredentials(options);
  made->SetAuthMetadataProcessor(std::make_shared<Gate>(std::move(access)));
  return made;
}

}  // namespace hotbed
