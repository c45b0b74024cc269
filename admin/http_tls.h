// The bytes of a connection of an HttpPort, in the clear or under TLS, by OpenSSL.
#ifndef HOTBED_ADMIN_HTTP_TLS_H_
#define HOTBED_ADMIN_HTTP_TLS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct ssl_st;
struct ssl_ctx_st;

namespace hotbed {

// Owns the descriptor, which must not block. Confined to one thread.
class HttpBytes {
 public:
  // Without `tls`: in the clear. Owns it, too.
  HttpBytes(int fd, ssl_st* tls) : fd_(fd), tls_(tls) {}
  ~HttpBytes();
  HttpBytes(const HttpBytes&) = delete;
  HttpBytes& operator=(const HttpBytes&) = delete;

  int fd() const { return fd_; }
  // As recv and send, with EPROTO for errors of TLS. The first calls shake hands.
  ssize_t Receive(char* to, size_t bytes);
  ssize_t Send(const char* from, size_t bytes);
  // Bytes are here of which poll does not tell.
  bool HasMore() const;
  // For poll, when Receive or Send has ended with EAGAIN: hands are shaken in both directions.
  int16_t EventsToRead() const;
  int16_t EventsToWrite() const;
  // The peer reads to the end.
  void EndWriting();

 private:
  ssize_t Note(int result);

  const int fd_;
  ssl_st* const tls_;
  enum class Wants { kNothing, kRead, kWrite } wants_ = Wants::kNothing;
};

// A certificate and its key. The files are looked at once per second, and new ones hold for new
// connections; files that do not belong together leave it as it was. Confined to one thread.
class HttpTls {
 public:
  // InvalidArgument names the file. The process ignores SIGPIPE from now on, since OpenSSL writes
  // to sockets.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Open(const std::string& certificate,
                                                       const std::string& key);
  ~HttpTls();
  HttpTls(const HttpTls&) = delete;
  HttpTls& operator=(const HttpTls&) = delete;

  std::unique_ptr<HttpBytes> Accept(int fd);

 private:
  HttpTls(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  absl::Status Load();
  std::string Stamp() const;  // differs when a file does

  const std::string certificate_;
  const std::string key_;
  ssl_ctx_st* context_ = nullptr;
  std::string stamp_;  // of the files of `context_`
  int64_t looked_ns_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ADMIN_HTTP_TLS_H_
