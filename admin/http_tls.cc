#include "admin/http_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kLookNs = kSecondNs;

int Length(size_t bytes) { return static_cast<int>(std::min<size_t>(bytes, INT_MAX)); }

std::string Reason() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(runtime/int): OpenSSL's type
  const char* const text = error == 0 ? nullptr : ERR_reason_error_string(error);
  return text == nullptr ? "no reason is told" : text;
}

}  // namespace

HttpBytes::~HttpBytes() {
  if (tls_ != nullptr) SSL_free(tls_);
  close(fd_);
}

ssize_t HttpBytes::Receive(char* to, size_t bytes) {
  if (tls_ == nullptr) return recv(fd_, to, bytes, 0);
  ERR_clear_error();
  return Note(SSL_read(tls_, to, Length(bytes)));
}

ssize_t HttpBytes::Send(const char* from, size_t bytes) {
  if (tls_ == nullptr) return send(fd_, from, bytes, MSG_NOSIGNAL);
  ERR_clear_error();
  return Note(SSL_write(tls_, from, Length(bytes)));
}

ssize_t HttpBytes::Note(int result) {
  wants_ = Wants::kNothing;
  if (result > 0) return result;
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
      wants_ = Wants::kRead;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      wants_ = Wants::kWrite;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      break;
  }
  if (SSL_is_init_finished(tls_) == 0 && ERR_peek_error() != 0) {
    HOTBED_LOG_EVERY_S(Info, 10) << "a caller of the HTTP port was refused by TLS: " << Reason();
  }
  ERR_clear_error();
  errno = EPROTO;
  return -1;
}

bool HttpBytes::HasMore() const { return tls_ != nullptr && SSL_pending(tls_) > 0; }

int16_t HttpBytes::EventsToRead() const { return wants_ == Wants::kWrite ? POLLOUT : POLLIN; }

int16_t HttpBytes::EventsToWrite() const { return wants_ == Wants::kRead ? POLLIN : POLLOUT; }

void HttpBytes::EndWriting() {
  if (tls_ != nullptr) (void)SSL_shutdown(tls_);
  shutdown(fd_, SHUT_WR);
}

absl::StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(const std::string& certificate,
                                                       const std::string& key) {
  signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<HttpTls> tls(new HttpTls(certificate, key));
  HOTBED_RETURN_IF_ERROR(tls->Load());
  return tls;
}

HttpTls::~HttpTls() { SSL_CTX_free(context_); }

absl::Status HttpTls::Load() {
  // Before they are read: a later change is seen at the next look.
  std::string stamp = Stamp();
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) return absl::InternalError(absl::StrCat("OpenSSL: ", Reason()));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // A key under a passphrase is refused: nobody is there to type one.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  std::string wrong;
  if (SSL_CTX_use_certificate_chain_file(context, certificate_.c_str()) != 1) {
    wrong = certificate_;
  } else if (SSL_CTX_use_PrivateKey_file(context, key_.c_str(), SSL_FILETYPE_PEM) != 1 ||
             SSL_CTX_check_private_key(context) != 1) {
    wrong = key_;
  }
  if (!wrong.empty()) {
    SSL_CTX_free(context);
    return absl::InvalidArgumentError(
        absl::StrCat("the HTTP port cannot use ", wrong, ": ", Reason()));
  }
  SSL_CTX_free(std::exchange(context_, context));
  stamp_ = std::move(stamp);
  return absl::OkStatus();
}

std::string HttpTls::Stamp() const {
  std::string stamp;
  for (const std::string& path : {certificate_, key_}) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0) continue;
    absl::StrAppend(&stamp, file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, ".",
                    file.st_mtim.tv_nsec, " ");
  }
  return stamp;
}

std::unique_ptr<HttpBytes> HttpTls::Accept(int fd) {
  const int64_t now_ns = Clock::Real()->NowNs();
  if (now_ns - looked_ns_ >= kLookNs) {
    looked_ns_ = now_ns;
    if (Stamp() != stamp_) {
      const absl::Status loaded = Load();
      if (!loaded.ok()) HOTBED_LOG_EVERY_S(Warning, 10) << loaded.message();
    }
  }
  SSL* const tls = SSL_new(context_);
  if (tls != nullptr) {
    SSL_set_fd(tls, fd);
    SSL_set_accept_state(tls);
    return std::make_unique<HttpBytes>(fd, tls);
  }
  close(fd);  // memory is used up
  return nullptr;
}

}  // namespace hotbed
