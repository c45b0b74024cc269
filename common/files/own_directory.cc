#include "common/files/own_directory.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// In the root of a new ext4 file system, where a data disk is often mounted.
constexpr absl::string_view kLostAndFound = "lost+found";

}  // namespace

absl::Status ClaimDirectory(const std::string& path, absl::string_view marker,
                            absl::Span<const absl::string_view> own, FileSystem* files) {
  if (!path.empty() && path.find_first_not_of('/') == std::string::npos) {
    return absl::FailedPreconditionError(
        "data directory / is the root directory; choose a directory that nothing else uses");
  }
  HOTBED_RETURN_IF_ERROR(files->MakeDir(path));
  if (files->Exists(absl::StrCat(path, "/", marker))) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(path));
  for (const std::string& name : names) {
    const bool known = name == kLostAndFound || absl::StartsWith(name, marker) ||
                       std::find(own.begin(), own.end(), name) != own.end();
    if (known) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", path, " holds \"", absl::CEscape(name.substr(0, 80)), "\" but no ",
        marker, ": it belongs to something else; choose an empty directory"));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
