// The text of S3's API: paths and queries in the form that is signed, and the XML of answers. Pure.
#ifndef HOTBED_PLACES_S3_ANSWERS_H_
#define HOTBED_PLACES_S3_ANSWERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hotbed {

// All bytes but A-Z a-z 0-9 - . _ ~ as %XX; slashes stay in the path of a key.
std::string EncodedPath(absl::string_view key);
std::string EncodedValue(absl::string_view value);
// name=value&..., by name. Values are encoded here.
std::string QueryOf(std::vector<std::pair<std::string, std::string>> values);

struct S3Error {
  std::string code;  // "SlowDown"; empty: the text is no error of S3
  std::string message;
};
S3Error ErrorIn(absl::string_view xml);

struct S3Listing {
  struct Object {
    std::string key;
    uint64_t bytes = 0;
    int64_t modified_unix_ms = 0;  // in a far future, if the store does not say
  };
  std::vector<Object> objects;
  std::vector<std::string> prefixes;  // that the delimiter cuts off, with their slash
  std::string next;                   // token for the rest; empty: this was all
};
// Unavailable: not an answer of ListObjectsV2.
absl::StatusOr<S3Listing> ListingIn(absl::string_view xml);

struct S3Uploads {
  struct Upload {
    std::string key;
    std::string id;
    int64_t begun_unix_ms = 0;
  };
  std::vector<Upload> uploads;
  std::string next_key;  // the rest is behind this one; empty: this was all
  std::string next_id;
};
absl::StatusOr<S3Uploads> UploadsIn(absl::string_view xml);
absl::StatusOr<std::string> UploadIdIn(absl::string_view xml);

// Unavailable: the answer to the end of an upload does not say that it has ended.
absl::Status CompletedBy(absl::string_view xml);
// The body that makes one object of parts 1, 2, ...
std::string CompletionOf(const std::vector<std::string>& etags);

constexpr size_t kS3DeletionsMax = 1000;  // keys in one body
std::string DeletionOf(absl::Span<const std::string> keys);
// The error of the first key that the store did not delete. Unavailable: no such answer.
absl::Status DeletedBy(absl::string_view xml);

}  // namespace hotbed

#endif  // HOTBED_PLACES_S3_ANSWERS_H_
