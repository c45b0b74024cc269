// HTTP/1 as far as our ports speak it: heads of requests, and answers. Pure functions.
#ifndef HOTBED_ADMIN_HTTP_REQUEST_H_
#define HOTBED_ADMIN_HTTP_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query, and without scheme and host
  std::optional<std::string> accept;
  std::optional<std::string> user_agent;
  std::optional<std::string> authorization;
  std::string body;
  int64_t arrived_ns = 0;  // when all of it was here
};

struct HttpHead {
  HttpRequest request;                     // without body
  std::optional<uint64_t> content_length;  // bytes of the body; nothing: it is not told
  bool chunked = false;                    // Transfer-Encoding, of any kind
  std::string encoding;                    // Content-Encoding
  bool expects_continue = false;
  bool keeps_open = false;  // the client may send a further request on the connection
};

// The lines before the empty one. InvalidArgument: no HTTP, or a length that is none, or two that
// differ.
absl::StatusOr<HttpHead> ParseHttpHead(absl::string_view lines);

// Without percent escapes ("%2F"); nothing: an escape that is none.
std::optional<std::string> UnescapePath(absl::string_view path);

struct HttpResponse {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // more of them
};

// "Not Found"
const char* HttpReason(int code);

// All bytes of the answer. `close`: no further request is taken on the connection.
std::string HttpAnswer(const HttpResponse& response, bool head_only, bool close);

}  // namespace hotbed

#endif  // HOTBED_ADMIN_HTTP_REQUEST_H_
