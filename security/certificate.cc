#include "security/certificate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION, X509_EXTENSION_free>>;
using Store = std::unique_ptr<X509_STORE, Freed<X509_STORE, X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX, X509_STORE_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>>;

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, FileCloser>;

constexpr size_t kNameBytesMax = 64;  // of a common name (RFC 5280)
constexpr int64_t kBackdatedS = 300;  // for clocks that are behind

absl::Status Broken(const char* step) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL, ", step, ": ", text));
}

absl::StatusOr<File> Open(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file != nullptr) return File(file);
  const std::string text = absl::StrCat(path, ": ", std::strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
}

absl::StatusOr<std::vector<X509Ptr>> ReadX509(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const File file, Open(path));
  std::vector<X509Ptr> read;
  while (X509* const one = PEM_read_X509(file.get(), nullptr, nullptr, nullptr)) {
    read.emplace_back(one);
  }
  const uint64_t error = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE || read.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, read.empty() ? ": holds no certificate" : ": a certificate is damaged",
                     "; expected PEM, as 'hotbed cert create' writes it"));
  }
  return read;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const File file, Open(path));
  Key key(PEM_read_PrivateKey(file.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": holds no private key that can be read without a password; expected "
                   "PEM"));
}

std::string CommonName(const X509_NAME* name) {
  char text[256] = "";
  X509_NAME_get_text_by_NID(name, NID_commonName, text, sizeof(text));
  return text;
}

int64_t SecondsOf(const ASN1_TIME* time) {
  tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

void ReadAlternativeNames(const X509* x509, Certificate* certificate) {
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x509, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) {
      certificate->hosts.push_back(TextOf(name->d.dNSName));
    } else if (name->type == GEN_URI) {
      const std::string uri = TextOf(name->d.uniformResourceIdentifier);
      absl::string_view role = uri;
      if (!absl::ConsumePrefix(&role, kRoleUri)) continue;
      if (const auto known = AccessRoleOf(role); known.ok()) certificate->roles.push_back(*known);
    } else if (name->type == GEN_IPADD) {
      const std::string bytes = TextOf(name->d.iPAddress);
      char text[INET6_ADDRSTRLEN] = "";
      inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
      certificate->hosts.push_back(text);
    }
  }
}

Certificate Describe(X509* x509) {
  Certificate certificate;
  certificate.name = CommonName(X509_get_subject_name(x509));
  certificate.issuer = CommonName(X509_get_issuer_name(x509));
  certificate.not_before_s = SecondsOf(X509_get0_notBefore(x509));
  certificate.not_after_s = SecondsOf(X509_get0_notAfter(x509));
  certificate.authority = X509_check_ca(x509) > 0;
  ReadAlternativeNames(x509, &certificate);
  return certificate;
}

std::string Day(int64_t seconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

absl::Status CheckTime(const std::string& path, const Certificate& certificate, int64_t now_s) {
  if (now_s < certificate.not_before_s) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the certificate of \"", certificate.name, "\" is valid from ",
                     Day(certificate.not_before_s), " on, and it is ", Day(now_s),
                     "; check this machine's clock"));
  }
  if (now_s > certificate.not_after_s) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the certificate of \"", certificate.name, "\" has expired on ",
                     Day(certificate.not_after_s), "; make a new one (hotbed cert create)"));
  }
  return absl::OkStatus();
}

absl::Status CheckSigned(const TlsFiles& files, const std::vector<X509Ptr>& own,
                         const std::vector<X509Ptr>& authorities, int64_t now_s) {
  const Store store(X509_STORE_new());
  for (const X509Ptr& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  STACK_OF(X509)* const chain = sk_X509_new_null();
  for (size_t i = 1; i < own.size(); ++i) sk_X509_push(chain, own[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), own[0].get(), chain);
  X509_STORE_CTX_set_time(context.get(), 0, now_s);
  const bool holds = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  sk_X509_free(chain);
  ERR_clear_error();
  if (holds) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(files.certificate, ": not signed by ",
                                                    files.authority, ": ",
                                                    X509_verify_cert_error_string(error)));
}

}  // namespace

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<X509Ptr> read, ReadX509(path));
  std::vector<Certificate> certificates;
  for (const X509Ptr& one : read) certificates.push_back(Describe(one.get()));
  return certificates;
}

TlsFiles TlsFilesOfEnvironment() {
  const auto value = [](const char* name) {
    const char* const found = std::getenv(name);
    return std::string(found == nullptr ? "" : found);
  };
  return {.certificate = value("HOTBED_TLS_CERT"),
          .key = value("HOTBED_TLS_KEY"),
          .authority = value("HOTBED_TLS_CA")};
}

namespace {

// While a pair is being replaced, one file may be new and the other not yet.
constexpr int kLooksMax = 20;
constexpr int64_t kLookAgainNs = 50'000'000;

// FailedPrecondition: the key is that of another certificate.
absl::StatusOr<std::vector<X509Ptr>> ReadPairOnce(const TlsFiles& files) {
  HOTBED_ASSIGN_OR_RETURN(std::vector<X509Ptr> own, ReadX509(files.certificate));
  HOTBED_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  if (X509_check_private_key(own[0].get(), key.get()) == 1) return own;
  ERR_clear_error();
  return absl::FailedPreconditionError(
      absl::StrCat(files.key, ": is not the key of the certificate in ", files.certificate));
}

absl::StatusOr<std::vector<X509Ptr>> ReadPair(const TlsFiles& files) {
  absl::StatusOr<std::vector<X509Ptr>> own = ReadPairOnce(files);
  for (int look = 1; look < kLooksMax && absl::IsFailedPrecondition(own.status()); ++look) {
    Clock::Real()->SleepNs(kLookAgainNs);
    own = ReadPairOnce(files);
  }
  return own;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files, int64_t now_s) {
  if (files.authority.empty()) {
    return absl::InvalidArgumentError(
        "a TLS certificate or key is given without --tls-ca: the authority that signs the "
        "certificates of the other side");
  }
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--tls-cert and --tls-key belong together; ",
                                                   files.key.empty() ? "--tls-key" : "--tls-cert",
                                                   " is missing"));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities, ReadX509(files.authority));
  if (files.certificate.empty()) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const std::vector<X509Ptr> own, ReadPair(files));
  HOTBED_RETURN_IF_ERROR(CheckTime(files.certificate, Describe(own[0].get()), now_s));
  return CheckSigned(files, own, authorities, now_s);
}

namespace {

absl::Status CheckName(const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (plain && name.size() <= kNameBytesMax && name[0] != '.' && name != "ca") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("certificate name \"", name.substr(0, 80), "\"; allowed: 1 to ", kNameBytesMax,
                   " letters, digits, '-', '_' and '.', not beginning with '.', and not \"ca\""));
}

absl::Status CheckDays(int64_t days) {
  if (days >= 1 && days <= 36'500) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a certificate of ", days, " days; allowed: 1 to 36500"));
}

// "DNS:a.example", "IP:10.0.0.1"
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  char address[16];
  if (inet_pton(AF_INET, host.c_str(), address) == 1 ||
      inet_pton(AF_INET6, host.c_str(), address) == 1) {
    return absl::StrCat("IP:", host);
  }
  const bool plain =
      !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '*';
      });
  if (plain) return absl::StrCat("DNS:", host);
  return absl::InvalidArgumentError(
      absl::StrCat("host \"", host.substr(0, 80), "\" is neither a DNS name nor an address"));
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Broken("adding an extension");
  }
  return absl::OkStatus();
}

// An unsigned certificate with subject, time and number.
absl::StatusOr<X509Ptr> Blank(const std::string& name, int64_t days, int64_t now_s, EVP_PKEY* key) {
  X509Ptr made(X509_new());
  uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) != 1) {
    return Broken("drawing a serial number");
  }
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), serial >> 1 | 1);
  ASN1_TIME_set(X509_getm_notBefore(made.get()), now_s - kBackdatedS);
  ASN1_TIME_set(X509_getm_notAfter(made.get()), now_s + days * kDayS);
  if (X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name.data()),
                                 static_cast<int>(name.size()), -1, 0) != 1 ||
      X509_set_pubkey(made.get(), key) != 1) {
    return Broken("naming a certificate");
  }
  return made;
}

// Writes beside `path` and renames, so that no reader sees half a file.
template <typename Write>
absl::Status WriteFile(const std::string& path, mode_t mode, Write write) {
  const std::string beside = absl::StrCat(path, ".new");
  unlink(beside.c_str());
  const int descriptor = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor < 0) {
    return absl::UnavailableError(absl::StrCat(beside, ": ", std::strerror(errno)));
  }
  File file(fdopen(descriptor, "we"));
  const bool written =
      write(file.get()) == 1 && std::fflush(file.get()) == 0 && fsync(descriptor) == 0;
  file.reset();
  if (written && rename(beside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string text = absl::StrCat(path, ": cannot be written: ", std::strerror(errno));
  unlink(beside.c_str());
  ERR_clear_error();
  return absl::UnavailableError(text);
}

absl::Status WritePair(const std::string& base, X509* certificate, EVP_PKEY* key) {
  HOTBED_RETURN_IF_ERROR(WriteFile(absl::StrCat(base, ".key"), 0600, [key](FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  }));
  return WriteFile(absl::StrCat(base, ".crt"), 0644,
                   [certificate](FILE* file) { return PEM_write_X509(file, certificate); });
}

absl::Status CheckAbsent(const std::string& base) {
  for (const char* const ending : {".crt", ".key"}) {
    const std::string path = absl::StrCat(base, ending);
    if (access(path.c_str(), F_OK) == 0) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists already, and stays"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateAuthority(const std::string& dir, const std::string& name, int64_t days,
                             int64_t now_s) {
  HOTBED_RETURN_IF_ERROR(CheckName(name));
  HOTBED_RETURN_IF_ERROR(CheckDays(days));
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat(dir, ": ", std::strerror(errno)));
  }
  const std::string base = absl::StrCat(dir, "/ca");
  HOTBED_RETURN_IF_ERROR(CheckAbsent(base));
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Broken("making a key");
  HOTBED_ASSIGN_OR_RETURN(const X509Ptr made, Blank(name, days, now_s, key.get()));
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  const std::pair<int, const char*> extensions[] = {
      {NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
      {NID_key_usage, "critical,keyCertSign,cRLSign"},
      {NID_subject_key_identifier, "hash"}};
  for (const auto& [nid, value] : extensions) {
    HOTBED_RETURN_IF_ERROR(AddExtension(made.get(), made.get(), nid, value));
  }
  if (X509_sign(made.get(), key.get(), EVP_sha256()) == 0) return Broken("signing");
  return WritePair(base, made.get(), key.get());
}

absl::Status CreateCertificate(const std::string& dir, const CertificateRequest& request,
                               bool replace, int64_t now_s) {
  HOTBED_RETURN_IF_ERROR(CheckName(request.name));
  HOTBED_RETURN_IF_ERROR(CheckDays(request.days));
  std::vector<std::string> names = {absl::StrCat("URI:", kRoleUri, AccessRoleName(request.role))};
  for (const std::string& host : request.hosts) {
    HOTBED_ASSIGN_OR_RETURN(names.emplace_back(), AlternativeName(host));
  }
  const std::string base = absl::StrCat(dir, "/", request.name);
  if (!replace) HOTBED_RETURN_IF_ERROR(CheckAbsent(base));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authority,
                          ReadX509(absl::StrCat(dir, "/ca.crt")));
  HOTBED_ASSIGN_OR_RETURN(const Key authority_key, ReadKey(absl::StrCat(dir, "/ca.key")));
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Broken("making a key");
  HOTBED_ASSIGN_OR_RETURN(const X509Ptr made, Blank(request.name, request.days, now_s, key.get()));
  X509_set_issuer_name(made.get(), X509_get_subject_name(authority[0].get()));
  const std::pair<int, std::string> extensions[] = {
      {NID_basic_constraints, "critical,CA:FALSE"},
      {NID_key_usage, "critical,digitalSignature"},
      {NID_ext_key_usage, "serverAuth,clientAuth"},
      {NID_subject_key_identifier, "hash"},
      {NID_authority_key_identifier, "keyid"},
      {NID_subject_alt_name, absl::StrJoin(names, ",")}};
  for (const auto& [nid, value] : extensions) {
    HOTBED_RETURN_IF_ERROR(AddExtension(made.get(), authority[0].get(), nid, value));
  }
  if (X509_sign(made.get(), authority_key.get(), EVP_sha256()) == 0) return Broken("signing");
  return WritePair(base, made.get(), key.get());
}

}  // namespace hotbed
