#include "security/server_security.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "security/refusals.h"

namespace hotbed {

std::function<uint64_t()> ServerSecurity::access_version() const {
  if (rules == nullptr) return nullptr;
  return [rules = rules] {
    static_cast<void>(rules->Get(Clock::Real()->NowNs()));
    return rules->version();
  };
}

std::function<bool(absl::string_view token)> ServerSecurity::admin_access() const {
  if (admin_tokens == nullptr) return nullptr;
  return [tokens = admin_tokens,
          refusals = std::make_shared<Refusals>("admin")](absl::string_view token) {
    if (!token.empty() && tokens->Get(Clock::Real()->NowNs())->CallerOfToken(token).has_value()) {
      return true;
    }
    refusals->Note(token.empty() ? "a request without a token, which --admin-tokens wants"
                                 : "a request with a token that --admin-tokens does not list");
    return false;
  };
}

void AddSecurityFlags(ConfigSchema* schema, SecurityFlags* flags) {
  schema->AddChoice("secure", &flags->secure, {"auto", "on", "off", "off-beyond-loopback"},
                    "TLS on every connection: auto has it if files are given; on requires them; "
                    "off is plaintext on loopback; off-beyond-loopback is plaintext anywhere, and "
                    "whoever reaches the port can read and write all rows.");
  schema->Add("tls-cert", &flags->files.certificate, "FILE",
              "This process's certificate in PEM, with role server, and those that lead to the "
              "authority. It and the next two are read again when they change.");
  schema->Add("tls-key", &flags->files.key, "FILE", "The certificate's private key in PEM.");
  schema->Add("tls-ca", &flags->files.authority, "FILE",
              "Certificates in PEM of the authority that signs those of all other parts.");
  schema->Add("access-rules", &flags->access_rules, "FILE",
              "YAML file of roles, their methods, and tokens; read again when it changes. Empty: "
              "the defaults of docs/security.md, and no token.");
  schema->Add("admin-tokens", &flags->admin_tokens, "FILE",
              "YAML file in the form of --access-rules; read again when it changes. The admin port "
              "shows its pages only to who has one of its tokens, of any role; /healthz and "
              "/readyz to all. Empty: it asks for none.");
}

bool ListensWide(const std::string& listen) {
  const absl::StatusOr<HostPort> place = SplitHostPort(listen, 0);
  return place.ok() && !IsLoopbackHost(place->host);
}

namespace {

absl::StatusOr<std::shared_ptr<WatchedRules>> OpenAdminTokens(const std::string& path) {
  if (path.empty()) return nullptr;
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<WatchedRules> tokens, WatchedRules::Open(path));
  if (tokens->Get(Clock::Real()->NowNs())->has_tokens()) return tokens;
  return absl::InvalidArgumentError(
      absl::StrCat("--admin-tokens=", path,
                   ": it lists no token, so nobody could read the admin port's pages; 'hotbed cert "
                   "hash-token' prints what to list"));
}

// The part that the data port or control port needs.
absl::StatusOr<ServerSecurity> OpenPortSecurity(const SecurityFlags& flags,
                                                const std::string& listen) {
  const bool off = absl::StartsWith(flags.secure, "off");
  if (off && flags.files.any()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--secure=", flags.secure, " and the files of TLS exclude each other"));
  }
  if (flags.files.any()) {
    if (flags.files.certificate.empty()) {
      return absl::InvalidArgumentError("--tls-cert is missing: who listens needs a certificate");
    }
    HOTBED_RETURN_IF_ERROR(CheckIdentity({.files = flags.files}));
    HOTBED_ASSIGN_OR_RETURN(const std::vector<Certificate> own,
                            ReadCertificates(flags.files.certificate));
    if (!absl::c_linear_search(own[0].roles, AccessRole::kServer)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--tls-cert=", flags.files.certificate, ": the certificate of \"", own[0].name,
          "\" has not the role server, so nobody would talk to this process; make one "
          "with 'hotbed cert create --role server'"));
    }
    ServerSecurity security = {.files = flags.files};
    HOTBED_ASSIGN_OR_RETURN(security.rules, WatchedRules::Open(flags.access_rules));
    return security;
  }
  if (flags.secure == "on") {
    return absl::InvalidArgumentError(
        "--secure=on needs --tls-cert, --tls-key and --tls-ca ('hotbed cert create' makes them)");
  }
  if (!flags.access_rules.empty()) {
    return absl::InvalidArgumentError(
        "--access-rules needs TLS: without it nobody can be told apart (--tls-cert, --tls-key, "
        "--tls-ca)");
  }
  if (ListensWide(listen) && flags.secure != "off-beyond-loopback") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen=", listen,
        " is reached from other machines, and there is no TLS: whoever reaches the port could read "
        "and write all rows. Give --tls-cert, --tls-key and --tls-ca ('hotbed cert create' makes "
        "them), or insist on plaintext with --secure=off-beyond-loopback"));
  }
  return ServerSecurity{};
}

}  // namespace

absl::StatusOr<ServerSecurity> OpenServerSecurity(const SecurityFlags& flags,
                                                  const std::string& listen) {
  HOTBED_ASSIGN_OR_RETURN(ServerSecurity security, OpenPortSecurity(flags, listen));
  HOTBED_ASSIGN_OR_RETURN(security.admin_tokens, OpenAdminTokens(flags.admin_tokens));
  return security;
}

absl::Status CheckPlainHttp(const std::string& secure, const std::string& listen) {
  if (!ListensWide(listen) || secure == "off-beyond-loopback") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--http-listen=", listen,
      " is reached from other machines, and has no TLS: tokens and rows could be read on the way. "
      "Give --http-secure=on, listen on loopback, or insist on plaintext with "
      "--http-secure=off-beyond-loopback"));
}

void WarnIfPlain(const ServerSecurity& security, const std::string& listen) {
  if (security.files.any() || !ListensWide(listen)) return;
  HOTBED_LOG(Warning) << "listening on " << listen
                      << " without TLS: whoever reaches this port can read and write all rows";
}

void WarnIfHttpWide(const ServerSecurity& security, const std::string& http_listen) {
  if (http_listen.empty() || !ListensWide(http_listen)) return;
  HOTBED_LOG(Warning) << "the HTTP port listens on " << http_listen << " without TLS: "
                      << (security.files.any()
                              ? "rows and tokens can be read on the way"
                              : "whoever reaches it can read all rows that this server serves");
}

void WarnIfAdminWide(const ServerSecurity& security, const std::string& admin_listen) {
  if (security.admin_tokens != nullptr || !ListensWide(admin_listen)) return;
  HOTBED_LOG(Warning) << "the admin port listens on " << admin_listen
                      << ", without --admin-tokens: whoever reaches it can read metrics and status";
}

}  // namespace hotbed
