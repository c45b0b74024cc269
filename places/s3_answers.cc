#include "places/s3_answers.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr size_t kErrorTextMax = 300;

std::string Encoded(absl::string_view text, bool slashes_stay) {
  std::string out;
  for (const char c : text) {
    const bool stays = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
                       c == '_' || c == '~' || (c == '/' && slashes_stay);
    if (stays) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// The contents of the next element of that name at or behind *at, which then is behind it. Elements
// of one name are not nested in these answers.
bool Next(absl::string_view xml, absl::string_view name, size_t* at, absl::string_view* contents) {
  const std::string begin = absl::StrCat("<", name, ">");
  const std::string end = absl::StrCat("</", name, ">");
  const size_t first = xml.find(begin, *at);
  if (first == xml.npos) return false;
  const size_t limit = xml.find(end, first);
  if (limit == xml.npos) return false;
  *contents = xml.substr(first + begin.size(), limit - first - begin.size());
  *at = limit + end.size();
  return true;
}

std::string TextOf(absl::string_view xml, absl::string_view name) {
  size_t at = 0;
  absl::string_view contents;
  if (!Next(xml, name, &at, &contents)) return "";
  return absl::StrReplaceAll(contents, {{"&lt;", "<"},
                                        {"&gt;", ">"},
                                        {"&quot;", "\""},
                                        {"&apos;", "'"},
                                        {"&#13;", "\r"},
                                        {"&#34;", "\""},
                                        {"&#39;", "'"},
                                        {"&amp;", "&"}});
}

std::optional<int64_t> UnixMsOf(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return std::nullopt;
  return absl::ToUnixMillis(time);
}

absl::Status NoAnswer(absl::string_view xml, absl::string_view root) {
  if (absl::StrContains(xml, absl::StrCat("</", root, ">"))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the store answered no ", root, ", but \"",
                                             xml.substr(0, 100),
                                             xml.size() > 100 ? "...\"" : "\""));
}

}  // namespace

std::string EncodedPath(absl::string_view key) { return Encoded(key, /*slashes_stay=*/true); }
std::string EncodedValue(absl::string_view value) { return Encoded(value, /*slashes_stay=*/false); }

std::string QueryOf(std::vector<std::pair<std::string, std::string>> values) {
  std::sort(values.begin(), values.end());
  std::string out;
  for (const auto& [name, value] : values) {
    absl::StrAppend(&out, out.empty() ? "" : "&", name, "=", EncodedValue(value));
  }
  return out;
}

S3Error ErrorIn(absl::string_view xml) {
  size_t at = 0;
  absl::string_view contents;
  if (!Next(xml, "Error", &at, &contents)) return {};
  return {TextOf(contents, "Code").substr(0, kErrorTextMax),
          TextOf(contents, "Message").substr(0, kErrorTextMax)};
}

absl::StatusOr<S3Listing> ListingIn(absl::string_view xml) {
  HOTBED_RETURN_IF_ERROR(NoAnswer(xml, "ListBucketResult"));
  S3Listing listing;
  absl::string_view contents;
  for (size_t at = 0; Next(xml, "Contents", &at, &contents);) {
    S3Listing::Object object = {
        TextOf(contents, "Key"), 0,
        UnixMsOf(TextOf(contents, "LastModified")).value_or(std::numeric_limits<int64_t>::max())};
    if (!absl::SimpleAtoi(TextOf(contents, "Size"), &object.bytes)) {
      return absl::UnavailableError(absl::StrCat("the store names no size of ", object.key));
    }
    listing.objects.push_back(std::move(object));
  }
  for (size_t at = 0; Next(xml, "CommonPrefixes", &at, &contents);) {
    listing.prefixes.push_back(TextOf(contents, "Prefix"));
  }
  if (TextOf(xml, "IsTruncated") == "true") listing.next = TextOf(xml, "NextContinuationToken");
  return listing;
}

absl::StatusOr<S3Uploads> UploadsIn(absl::string_view xml) {
  HOTBED_RETURN_IF_ERROR(NoAnswer(xml, "ListMultipartUploadsResult"));
  S3Uploads found;
  absl::string_view contents;
  for (size_t at = 0; Next(xml, "Upload", &at, &contents);) {
    const std::string text = TextOf(contents, "Initiated");
    const std::optional<int64_t> begun = UnixMsOf(text);
    if (!begun.has_value()) {
      return absl::UnavailableError(absl::StrCat("the store names \"", text, "\" as a time"));
    }
    found.uploads.push_back({TextOf(contents, "Key"), TextOf(contents, "UploadId"), *begun});
  }
  if (TextOf(xml, "IsTruncated") == "true") {
    found.next_key = TextOf(xml, "NextKeyMarker");
    found.next_id = TextOf(xml, "NextUploadIdMarker");
  }
  return found;
}

absl::StatusOr<std::string> UploadIdIn(absl::string_view xml) {
  HOTBED_RETURN_IF_ERROR(NoAnswer(xml, "InitiateMultipartUploadResult"));
  return TextOf(xml, "UploadId");
}

absl::Status CompletedBy(absl::string_view xml) {
  return NoAnswer(xml, "CompleteMultipartUploadResult");
}

std::string CompletionOf(const std::vector<std::string>& etags) {
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags.size(); ++i) {
    absl::StrAppend(&body, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>", etags[i],
                    "</ETag></Part>");
  }
  return absl::StrCat(body, "</CompleteMultipartUpload>");
}

std::string DeletionOf(absl::Span<const std::string> keys) {
  std::string body = "<Delete><Quiet>true</Quiet>";
  for (const std::string& key : keys) {
    absl::StrAppend(&body, "<Object><Key>",
                    absl::StrReplaceAll(key, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}),
                    "</Key></Object>");
  }
  return absl::StrCat(body, "</Delete>");
}

absl::Status DeletedBy(absl::string_view xml) {
  if (!absl::StrContains(xml, "<DeleteResult")) return NoAnswer(xml, "DeleteResult");
  size_t at = 0;
  absl::string_view contents;
  if (!Next(xml, "Error", &at, &contents)) return absl::OkStatus();
  const std::string code = TextOf(contents, "Code");
  const std::string message = absl::StrCat("deleting ", TextOf(contents, "Key"), ": ", code, ": ",
                                           TextOf(contents, "Message"));
  return code == "AccessDenied" ? absl::PermissionDeniedError(message)
                                : absl::UnavailableError(message);
}

}  // namespace hotbed
