#include "places/s3_place.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/status_macros.h"

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
  HOTBED_RETURN_IF_ERROR(ListPages(path, prefix, "/", [&](const S3Listing& page) {
    for (const S3Listing::Object& object : page.objects) {
      if (object.key.size() <= prefix.size()) continue;  // some tools put one for the folder
      entries.push_back({object.key.substr(prefix.size()), object.bytes});
    }
    for (absl::string_view below : page.prefixes) {
      absl::ConsumeSuffix(&below, "/");
      if (below.size() <= prefix.size()) continue;
      entries.push_back({std::string(below.substr(prefix.size())), 0});
    }
  }));
  if (entries.empty()) return absl::NotFoundError(absl::StrCat("nothing is in ", folder));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

absl::Status S3Place::ListPages(const S3Path& path, const std::string& prefix,
                                const std::string& delimiter,
                                absl::FunctionRef<void(const S3Listing& page)> visit) {
  std::string token;
  do {
    std::vector<std::pair<std::string, std::string>> query = {{"list-type", "2"},
                                                              {"prefix", prefix}};
    if (!delimiter.empty()) query.emplace_back("delimiter", delimiter);
    if (!token.empty()) query.emplace_back("continuation-token", token);
    HOTBED_ASSIGN_OR_RETURN(const S3Answer answer,
                            requests_->Send({"GET", path.bucket, "", QueryOf(query)}));
    HOTBED_ASSIGN_OR_RETURN(S3Listing page, ListingIn(answer.body));
    visit(page);
    token = std::move(page.next);
  } while (!token.empty());
  return absl::OkStatus();
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
  std::vector<std::string> keys;
  for (const std::string& file : files) keys.push_back(PrefixOf(path) + file);
  return DeleteKeys(path.bucket, keys);
}

absl::Status S3Place::DeleteKeys(const std::string& bucket, absl::Span<const std::string> keys) {
  if (keys.size() == 1) return requests_->Send({"DELETE", bucket, keys[0]}).status();
  for (size_t first = 0; first < keys.size(); first += kS3DeletionsMax) {
    const absl::Span<const std::string> some = keys.subspan(first, kS3DeletionsMax);
    const std::string body = DeletionOf(some);
    S3Request request = {"POST", bucket, "", QueryOf({{"delete", ""}}), body};
    request.has_checksum = true;
    const absl::StatusOr<S3Answer> answer = requests_->Send(request);
    if (answer.ok()) {
      HOTBED_RETURN_IF_ERROR(DeletedBy(answer->body));
      continue;
    }
    // Some stores do not have it, or want another checksum.
    if (!absl::IsInvalidArgument(answer.status()) && !absl::IsUnimplemented(answer.status())) {
      return answer.status();
    }
    for (const std::string& key : some) {
      HOTBED_RETURN_IF_ERROR(requests_->Send({"DELETE", bucket, key}).status());
    }
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
  HOTBED_ASSIGN_OR_RETURN(const uint64_t strays, DeleteStrays(path, before_unix_ms));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t ended, EndUploads(path, before_unix_ms));
  return strays + ended;
}

absl::StatusOr<uint64_t> S3Place::DeleteStrays(const S3Path& path, int64_t before_unix_ms) {
  const std::string prefix = PrefixOf(path);
  std::map<std::string, std::vector<std::string>> strays;  // keys by folder
  std::set<std::string> named;
  HOTBED_RETURN_IF_ERROR(ListPages(path, prefix, "", [&](const S3Listing& page) {
    for (const S3Listing::Object& object : page.objects) {
      const absl::string_view name = absl::string_view(object.key).substr(prefix.size());
      const size_t slash = name.find('/');
      if (slash == name.npos) continue;
      const std::string below(name.substr(0, slash));
      if (!IsOfSave(object.key, path) || object.modified_unix_ms >= before_unix_ms) {
        named.insert(below);  // a mark, a manifest, somebody else's, or a file that is new
      } else {
        strays[below].push_back(object.key);
      }
    }
  }));
  uint64_t deleted = 0;
  for (const auto& [below, keys] : strays) {
    if (named.contains(below)) continue;
    HOTBED_RETURN_IF_ERROR(DeleteKeys(path.bucket, keys));
    deleted += keys.size();
  }
  return deleted;
}

absl::StatusOr<uint64_t> S3Place::EndUploads(const S3Path& path, int64_t before_unix_ms) {
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
