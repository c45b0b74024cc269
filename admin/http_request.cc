#include "admin/http_request.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace hotbed {
namespace {

// False: the field contradicts another, or has no meaning.
bool TakeField(absl::string_view name, absl::string_view value, bool* has_length, HttpHead* head) {
  // A proxy in front of us may read such a name otherwise.
  if (name != absl::StripAsciiWhitespace(name)) return false;
  const auto is = [name](const char* field) { return absl::EqualsIgnoreCase(name, field); };
  HttpRequest& request = head->request;
  if (is("accept")) request.accept = std::string(value);
  if (is("user-agent")) request.user_agent = std::string(value);
  if (is("authorization")) request.authorization = std::string(value);
  if (is("expect")) head->expects_continue = absl::EqualsIgnoreCase(value, "100-continue");
  if (is("connection") && absl::StrContains(absl::AsciiStrToLower(value), "close"))
    head->keeps_open = false;
  if (is("transfer-encoding")) head->chunked = true;
  if (!is("content-length")) return true;
  uint64_t length = 0;
  const bool digits = !value.empty() && value.size() <= 19 &&
                      value.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(value, &length)) return false;
  if (*has_length && length != head->content_length) return false;
  *has_length = true;
  head->content_length = length;
  return true;
}

}  // namespace

std::optional<HttpHead> ParseHttpHead(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(lines[0]), ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return std::nullopt;
  HttpHead head;
  head.request.method = std::string(words[0]);
  head.request.path = std::string(words[1].substr(0, words[1].find('?')));
  head.keeps_open = words[2] != "HTTP/1.0";
  bool has_length = false;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(absl::StripSuffix(lines[i], "\r"), absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (!TakeField(field.first, value, &has_length, &head)) return std::nullopt;
  }
  // Two ends of one body: a proxy in front of us may take the other one.
  if (head.chunked && has_length) return std::nullopt;
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
