#include "cli/cluster/http_get.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/dial.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr size_t kBodyBytesMax = 64 << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Unreachable(const std::string& address, const char* what) {
  return absl::UnavailableError(
      absl::StrCat("http://", address, ": ", what, ": ", std::strerror(errno)));
}

// The header field of the token, or nothing.
absl::StatusOr<std::string> Authorization() {
  const char* const path = std::getenv(kAdminTokenName);
  if (path == nullptr || *path == '\0') return "";
  HOTBED_ASSIGN_OR_RETURN(const std::string token, FileSystem::Real()->ReadAll(path));
  return absl::StrCat("Authorization: Bearer ", absl::StripAsciiWhitespace(token), "\r\n");
}

}  // namespace

absl::StatusOr<HttpReply> HttpGet(const std::string& address, const std::string& path,
                                  absl::Duration timeout) {
  HOTBED_ASSIGN_OR_RETURN(const std::string authorization, Authorization());
  const absl::StatusOr<int> dialed = Dial(address, timeout);
  if (absl::IsInvalidArgument(dialed.status())) return dialed.status();
  if (!dialed.ok()) {
    return absl::UnavailableError(absl::StrCat("http://", dialed.status().message()));
  }
  const Socket socket(*dialed);
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  fcntl(socket.fd(), F_SETFL, 0);  // waits, as long as the limits say
  const std::string request = absl::StrCat(
      "GET ", path, " HTTP/1.1\r\nHost: ", address,
      "\r\nAccept: application/json, text/plain\r\nConnection: close\r\n", authorization, "\r\n");
  if (send(socket.fd(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return Unreachable(address, "cannot send");
  }
  std::string response;
  char buffer[16384];
  ssize_t n = 0;
  while ((n = recv(socket.fd(), buffer, sizeof(buffer), 0)) > 0 &&
         response.size() < kBodyBytesMax) {
    response.append(buffer, static_cast<size_t>(n));
  }
  if (n < 0) return Unreachable(address, "no answer");
  HttpReply reply;
  const size_t end = response.find("\r\n\r\n");
  if (response.compare(0, 5, "HTTP/") != 0 || end == std::string::npos ||
      !absl::SimpleAtoi(response.substr(9, 3), &reply.code)) {
    return absl::UnavailableError(absl::StrCat("http://", address, ": the answer is not HTTP"));
  }
  reply.body = response.substr(end + 4);
  return reply;
}

absl::Status GetReady(const std::string& address) {
  HOTBED_ASSIGN_OR_RETURN(const HttpReply reply,
                          HttpGet(address, "/readyz", absl::Milliseconds(500)));
  return reply.code == 200 ? absl::OkStatus() : absl::UnavailableError(reply.body);
}

}  // namespace hotbed
