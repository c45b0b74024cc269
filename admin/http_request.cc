#include "admin/http_request.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/field_error.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status NoRequest(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("no HTTP request: ", why));
}

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CEscape(text.substr(0, 40)), "\"");
}

absl::Status TakeLength(absl::string_view value, HttpHead* head) {
  uint64_t length = 0;
  const bool digits = !value.empty() && value.size() <= 19 &&
                      value.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(value, &length)) {
    return FieldError("", "Content-Length", Shown(value), "1 to 19 digits, the bytes of the body");
  }
  if (head->content_length.value_or(length) != length) {
    return FieldError("", "Content-Length", absl::StrCat(*head->content_length, " and ", length),
                      "one number");
  }
  head->content_length = length;
  return absl::OkStatus();
}

// Not OK: the field contradicts another, or has no meaning.
absl::Status TakeField(absl::string_view name, absl::string_view value, HttpHead* head) {
  // A proxy in front of us may read such a name otherwise.
  if (name != absl::StripAsciiWhitespace(name)) {
    return NoRequest(absl::StrCat("the name of field ", Shown(name), " has spaces around it"));
  }
  const auto is = [name](const char* field) { return absl::EqualsIgnoreCase(name, field); };
  HttpRequest& request = head->request;
  if (is("accept")) request.accept = std::string(value);
  if (is("user-agent")) request.user_agent = std::string(value);
  if (is("authorization")) request.authorization = std::string(value);
  if (is("expect")) head->expects_continue = absl::EqualsIgnoreCase(value, "100-continue");
  if (is("connection") && absl::StrContains(absl::AsciiStrToLower(value), "close"))
    head->keeps_open = false;
  if (is("transfer-encoding")) head->chunked = true;
  if (is("content-encoding")) head->encoding = std::string(value);
  return is("content-length") ? TakeLength(value, head) : absl::OkStatus();
}

// The path of "/path?query" or of an absolute URI.
absl::string_view PathOf(absl::string_view target) {
  target = target.substr(0, target.find('?'));
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    return path == absl::string_view::npos ? absl::string_view("/") : target.substr(path);
  }
  return target;
}

}  // namespace

absl::StatusOr<HttpHead> ParseHttpHead(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const absl::string_view first = absl::StripTrailingAsciiWhitespace(lines[0]);
  const std::vector<absl::string_view> words = absl::StrSplit(first, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) {
    return NoRequest(
        absl::StrCat("its first line is ", Shown(first), "; allowed: METHOD PATH HTTP/1.1"));
  }
  HttpHead head;
  head.request.method = std::string(words[0]);
  head.request.path = std::string(PathOf(words[1]));
  head.keeps_open = words[2] != "HTTP/1.0";
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(absl::StripSuffix(lines[i], "\r"), absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    HOTBED_RETURN_IF_ERROR(TakeField(field.first, value, &head));
  }
  // Two ends of one body: a proxy in front of us may take the other one.
  if (head.chunked && head.content_length.has_value()) {
    return NoRequest("it has both Content-Length and Transfer-Encoding");
  }
  return head;
}

std::optional<std::string> UnescapePath(absl::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out.push_back(path[i]);
      continue;
    }
    if (path.size() - i < 3 || !absl::ascii_isxdigit(path[i + 1]) ||
        !absl::ascii_isxdigit(path[i + 2])) {
      return std::nullopt;
    }
    out += absl::HexStringToBytes(path.substr(i + 1, 2));
    i += 2;
  }
  return out;
}

const char* HttpReason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}

std::string HttpAnswer(const HttpResponse& response, bool head_only, bool close) {
  std::string answer = absl::StrCat(
      "HTTP/1.1 ", response.code, " ", HttpReason(response.code),
      "\r\nContent-Type: ", response.type, "\r\nContent-Length: ", response.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
      close ? "Connection: close\r\n" : "");
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&answer, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&answer, "\r\n", head_only ? "" : response.body);
  return answer;
}

}  // namespace hotbed
