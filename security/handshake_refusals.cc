#include "security/handshake_refusals.h"

#include <grpc/support/log.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "security/refusals.h"

namespace hotbed {
namespace {

constexpr absl::string_view kFailed = "Handshake failed";
constexpr absl::string_view kVerify = "certificate verify failed";
// How the probe by which each port asks itself ends (ports/port.cc): every two seconds, for nobody.
constexpr absl::string_view kProbe = "unexpected message";
// Host names are not compared, see docs/security.md.
constexpr absl::string_view kHostName = "No match found for server name";

// The last words of "Handshake failed with fatal error SSL_ERROR_SSL: error:0A000086:SSL
// routines::certificate verify failed.".
absl::string_view Reason(absl::string_view message) {
  const size_t at = message.rfind("::");
  if (at != absl::string_view::npos) message.remove_prefix(at + 2);
  while (absl::EndsWith(message, ".")) message.remove_suffix(1);
  return message.substr(0, 200);
}

void NoteHandshake(absl::string_view reason) {
  static auto* const refusals = new Refusals("tls");
  if (reason == kProbe) return;
  const char* const more =
      reason == kVerify ? ": the caller's is expired, or no authority of --tls-ca signed it" : "";
  refusals->Note(absl::StrCat("a handshake: ", absl::CEscape(reason), more));
}

void OnMessage(gpr_log_func_args* args) {
  const absl::string_view message = absl::StripAsciiWhitespace(args->message);
  if (absl::StartsWith(message, kFailed)) {
    NoteHandshake(Reason(message));
  } else if (args->severity == GPR_LOG_SEVERITY_ERROR && !absl::StartsWith(message, kHostName)) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "gRPC: " << absl::CEscape(message.substr(0, 500));
  }
}

}  // namespace

void TellHandshakeRefusals() {
  gpr_set_log_function(&OnMessage);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

}  // namespace hotbed
