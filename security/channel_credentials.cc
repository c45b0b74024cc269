#include "security/channel_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"

namespace hotbed {
namespace {

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// The chain has been verified by then.
class IsServer final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    const std::string wanted = absl::StrCat(kRoleUri, AccessRoleName(AccessRole::kServer));
    const std::vector<grpc::string_ref> uris = request->uri_names();
    const bool is = std::any_of(uris.begin(), uris.end(),
                                [&](const grpc::string_ref& uri) { return View(uri) == wanted; });
    if (!is) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             absl::StrCat("the certificate of \"", View(request->common_name()),
                                          "\" has not the role server"));
    }
    return true;  // decided at once
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}
};

// Adds the token of a file, as it is at each call, so that it can be replaced.
class TokenOfFile final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenOfFile(std::string path) : path_(std::move(path)) {}
  const char* GetType() const override { return "hotbed-token"; }
  bool IsBlocking() const override { return true; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    const absl::StatusOr<std::string> text = FileSystem::Real()->ReadAll(path_);
    if (!text.ok()) {
      return {grpc::StatusCode::UNAVAILABLE, std::string(text.status().message())};
    }
    metadata->emplace("authorization", absl::StrCat("Bearer ", absl::StripAsciiWhitespace(*text)));
    return grpc::Status::OK;
  }

 private:
  const std::string path_;
};

grpc::experimental::TlsChannelCredentialsOptions OptionsOf(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.authority, kLookEveryS));
  options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  return options;
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const ClientIdentity& identity) {
  grpc::experimental::TlsChannelCredentialsOptions options = OptionsOf(identity.files);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<IsServer>());
  std::shared_ptr<grpc::ChannelCredentials> made = grpc::experimental::TlsCredentials(options);
  if (identity.token_file.empty()) return made;
  return grpc::CompositeChannelCredentials(
      made,
      grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenOfFile>(identity.token_file)));
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientIdentity& identity) {
  if (!identity.files.any()) return grpc::InsecureChannelCredentials();
  // Each provider has a thread that watches its files, so it is made once and kept.
  static absl::Mutex mu(absl::kConstInit);
  static auto* const kept =
      new std::map<std::pair<TlsFiles, std::string>, std::shared_ptr<grpc::ChannelCredentials>>;
  absl::MutexLock lock(&mu);
  auto& credentials = (*kept)[{identity.files, identity.token_file}];
  if (credentials == nullptr) credentials = MakeChannelCredentials(identity);
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> NamedHostCredentialsOf(const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options = OptionsOf(files);
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::HostNameCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace hotbed
