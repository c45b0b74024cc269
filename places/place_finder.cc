#include "places/place_finder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "places/servers_path.h"

namespace hotbed {
namespace {

constexpr absl::string_view kObjectStore = "s3://";

}  // namespace

PlaceFinder* PlaceFinder::Real() {
  static PlaceFinder* const finder = new PlaceFinder(FileSystem::Real());
  return finder;
}

absl::StatusOr<Place*> PlaceFinder::Of(const std::string& path) {
  if (absl::StartsWith(path, "/")) return &directories_;
  if (!NamesObjectStore(path) && !NamesServersDisks(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\" is neither an absolute path nor s3://BUCKET/PREFIX"));
  }
  HOTBED_RETURN_IF_ERROR(PlacePath(path).status());
  absl::MutexLock lock(&mu_);
  if (NamesServersDisks(path)) {
    if (servers_ != nullptr) return servers_.get();
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " lies on the disks of a cluster's servers, which are not reached from here; bring "
        "it into a directory with 'hotbed checkpoint fetch'"));
  }
  if (stopped_) return absl::CancelledError(absl::StrCat(path, ": this process is stopping"));
  if (objects_ == nullptr) {
    HOTBED_ASSIGN_OR_RETURN(S3Options options, S3Options::OfEnvironment());
    HOTBED_ASSIGN_OR_RETURN(objects_, S3Place::Make(std::move(options)));
  }
  return objects_.get();
}

void PlaceFinder::ReachServers(std::unique_ptr<Place> servers) {
  absl::MutexLock lock(&mu_);
  servers_ = std::move(servers);
}

void PlaceFinder::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  if (objects_ != nullptr) objects_->Stop();
}

bool NamesObjectStore(absl::string_view path) { return absl::StartsWith(path, kObjectStore); }

absl::StatusOr<std::string> PlacePath(const std::string& written) {
  if (NamesServersDisks(written)) {
    const std::string path(absl::StripSuffix(written, "/"));
    HOTBED_RETURN_IF_ERROR(CheckServersPath(path));
    return path;
  }
  if (!NamesObjectStore(written)) {
    if (written.empty()) return absl::InvalidArgumentError("the path is empty");
    std::string path = std::filesystem::absolute(written).lexically_normal().string();
    if (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
  }
  absl::string_view rest = written;
  absl::ConsumePrefix(&rest, kObjectStore);
  absl::ConsumeSuffix(&rest, "/");
  for (const absl::string_view part : absl::StrSplit(rest, '/')) {
    if (!part.empty() && part != "." && part != "..") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", written,
                     "\" is not of the form s3://BUCKET/PREFIX, in which no part is empty, "
                     "\".\" or \"..\""));
  }
  const absl::string_view bucket = rest.substr(0, rest.find('/'));
  const bool plain = std::all_of(bucket.begin(), bucket.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (!plain || bucket.size() < 3 || bucket.size() > 63) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bucket \"", bucket,
                     "\" is not of 3 to 63 letters, digits, dots, hyphens and underscores"));
  }
  return absl::StrCat(kObjectStore, rest);
}

}  // namespace hotbed
