#include "security/identity.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

int64_t NowS() { return Clock::Real()->WallUs() / 1'000'000; }

}  // namespace

ClientIdentity IdentityOfEnvironment() {
  const char* const token = std::getenv("HOTBED_TOKEN_FILE");
  return {.files = TlsFilesOfEnvironment(), .token_file = token == nullptr ? "" : token};
}

absl::Status CheckIdentity(const ClientIdentity& identity) {
  if (!identity.files.any()) {
    if (identity.token_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the token of ", identity.token_file,
        " would travel in plaintext; give the authority of the servers, too (HOTBED_TLS_CA)"));
  }
  HOTBED_RETURN_IF_ERROR(CheckTlsFiles(identity.files, NowS()));
  if (identity.token_file.empty()) return absl::OkStatus();
  return FileSystem::Real()->ReadAll(identity.token_file).status();
}

}  // namespace hotbed
