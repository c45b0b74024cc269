#include "places/s3_place.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "places/s3_answers.h"
#include "places/s3_files.h"

namespace hotbed {
namespace {

S3Path PathOf(absl::string_view path) {
  absl::ConsumePrefix(&path, "s3://");
  const size_t slash = std::min(path.find('/'), path.size());
  const absl::string_view key = path.substr(std::min(slash + 1, path.size()));
  return {std::string(path.substr(0, slash)), std::string(key)};
}

std::string PrefixOf(const S3Path& folder) {
  return folder.key.empty() ? "" : absl::StrCat(folder.key, "/");
}

// Whether a file of that key is N-N-N.rows in the folder, or in one in it. Others may keep files of
// their own in the bucket.
bool IsOfSave(absl::string_view key, const S3Path& folder) {
  if (!absl::ConsumePrefix(&key, PrefixOf(folder))) return false;
  const size_t slash = key.find('/');
  if (slash != key.npos) key.remove_prefix(slash + 1);
  if (!absl::ConsumeSuffix(&key, ".rows")) return false;
  return std::count(key.begin(), key.end(), '-') == 2 &&
         key.find_first_not_of("0123456789-") == key.npos;
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Place>> S3Place::Make(S3Options options) {
  const uint64_t seed = static_cast<uint64_t>(Clock::Real()->WallUs());
  HOTBED_ASSIGN_OR_RETURN(auto requests, S3Requests::Make(std::move(options), Clock::Real(), seed));
  return std::unique_ptr<S3Place>(new S3Place(std::move(requests)));
}

absl::StatusOr<std::vector<Place::Entry>> S3Place::List(const std::string& folder) {
  const S3Path path = PathOf(folder);
  const std::string prefix = PrefixOf(path);
  std::vector<Entry> entries;
  std::string token;
  do {
    std::vector<std::pair<std::string, std::string>> query = {
        {"delimiter", "/"}, {"list-type", "2"}, {"prefix", prefix}};
    if (!token.empty()) query.emplace_back("continuation-token", token);
    HOTBED_ASSIGN_OR_RETURN(const S3Answer answer,
                            requests_->Send({"GET", path.bucket, "", QueryOf(query)}));
    HOTBED_ASSIGN_OR_RETURN(S3Listing listing, ListingIn(answer.body));
    for (const S3Listing::Object& object : listing.objects) {
      if (object.key.size() <= prefix.size()) continue;  // some tools put one for the folder
      entries.push_back({object.key.substr(prefix.size()), object.bytes});
    }
    for (absl::string_view below : listing.prefixes) {
      absl::ConsumeSuffix(&below, "/");
      if (below.size() <= prefix.size()) continue;
      entries.push_back({std::string(below.substr(prefix.size())), 0});
    }
    token = std::move(listing.next);
  } while (!token.empty());
  if (entries.empty()) return absl::NotFoundError(absl::StrCat("nothing is in ", folder));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

absl::StatusOr<bool> S3Place::Has(const std::string& path) {
  const S3Path object = PathOf(path);
  const absl::Status there = requests_->Send({"HEAD", object.bucket, object.key}).status();
  if (absl::IsNotFound(there)) return false;
  if (!there.ok()) return there;
  return true;
}

absl::StatusOr<std::string> S3Place::ReadAll(const std::string& path) {
  S3Path object = PathOf(path);
  HOTBED_ASSIGN_OR_RETURN(S3Answer answer, requests_->Send({"GET", object.bucket, object.key}));
  return std::move(answer.body);
}

absl::StatusOr<std::unique_ptr<PlaceReader>> S3Place::Open(const std::string& path) {
  return S3Reader::Open(PathOf(path), requests_.get());
}

absl::StatusOr<std::unique_ptr<PlaceWriter>> S3Place::Create(const std::string& path) {
  return S3Writer::Begin(PathOf(path), requests_.get());
}

absl::Status S3Place::Put(const std::string& path, absl::string_view content) {
  S3Path object = PathOf(path);
  return requests_->Send({"PUT", object.bucket, object.key, "", content}).status();
}

absl::Status S3Place::Delete(const std::string& folder, const std::vector<std::string>& files) {
  const S3Path path = PathOf(folder);
  for (const std::string& file : files) {
    const std::string key = PrefixOf(path) + file;
    HOTBED_RETURN_IF_ERROR(requests_->Send({"DELETE", path.bucket, key}).status());
  }
  return absl::OkStatus();
}

absl::Status S3Place::MakeFolder(const std::string& folder) {
  const auto entries = List(folder);
  if (entries.ok()) return absl::AlreadyExistsError(absl::StrCat(folder, " exists already"));
  // A bucket is not made by the way.
  const bool bucket_missing = absl::StrContains(entries.status().message(), "NoSuchBucket");
  return absl::IsNotFound(entries.status()) && !bucket_missing ? absl::OkStatus()
                                                               : entries.status();
}

absl::Status S3Place::DeleteFolder(const std::string& /*folder*/) {
  return absl::OkStatus();  // there are no folders, but keys
}

absl::StatusOr<uint64_t> S3Place::EndUnfinished(const std::string& folder, int64_t before_unix_ms) {
  const S3Path path = PathOf(folder);
  uint64_t ended = 0;
  S3Uploads found;
  do {
    std::vector<std::pair<std::string, std::string>> query = {{"uploads", ""},
                                                              {"prefix", PrefixOf(path)}};
    if (!found.next_key.empty()) {
      query.emplace_back("key-marker", found.next_key);
      query.emplace_back("upload-id-marker", found.next_id);
    }
    HOTBED_ASSIGN_OR_RETURN(const S3Answer answer,
                            requests_->Send({"GET", path.bucket, "", QueryOf(query)}));
    HOTBED_ASSIGN_OR_RETURN(found, UploadsIn(answer.body));
    for (const S3Uploads::Upload& upload : found.uploads) {
      if (upload.begun_unix_ms >= before_unix_ms || !IsOfSave(upload.key, path)) continue;
      const absl::Status done =
          requests_->Send({"DELETE", path.bucket, upload.key, QueryOf({{"uploadId", upload.id}})})
              .status();
      if (!done.ok() && !absl::IsNotFound(done)) return done;
      ++ended;
    }
  } while (!found.next_key.empty());
  return ended;
}

}  // namespace hotbed
