#include "places/servers_path.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::string_view kServers = "server:";
constexpr size_t kPartsMax = 3;  // place, checkpoint, file
constexpr size_t kPartBytesMax = 128;

bool IsPlainPart(absl::string_view part) {
  return !part.empty() && part.size() <= kPartBytesMax && part[0] != '.' &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

bool NamesServersDisks(absl::string_view path) { return absl::StartsWith(path, kServers); }

absl::Status CheckServersPath(absl::string_view path) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(path.substr(std::min(path.size(), kServers.size())), '/');
  if (NamesServersDisks(path) && parts.size() <= kPartsMax &&
      std::all_of(parts.begin(), parts.end(), IsPlainPart)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CEscape(path.substr(0, 2 * kPartBytesMax)),
      "\" is not of the form server:NAME or server:NAME/CHECKPOINT, in which a name has 1..",
      kPartBytesMax, " letters, digits, '-', '_' and '.', and does not begin with '.'"));
}

absl::StatusOr<std::string> PathBelow(const std::string& root, absl::string_view path) {
  HOTBED_RETURN_IF_ERROR(CheckServersPath(path));
  return absl::StrCat(root, "/", path.substr(kServers.size()));
}

}  // namespace hotbed
