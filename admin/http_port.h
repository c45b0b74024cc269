// The HTTP side of the admin port: GET and HEAD, one request per connection.
//
// One thread accepts, reads and writes for all connections, and answers probes itself: a silent,
// dripping or slow client occupies a place in a table and no thread. Pages, which may take long,
// are made by a second thread of lower priority, one at a time.
//
// Limits: kConnectionsMax connections, of which a further one takes the place of the oldest of the
// peer with most; kHeadBytesMax and kHeadNsMax for a request, kAnswerNsMax for reading an answer;
// kPagesWaitingMax pages and kAnswerBytesMax bytes of answers before 503. One descriptor is kept
// in reserve, so that probes are answered in a process that has run out of them.
#ifndef HOTBED_ADMIN_HTTP_PORT_H_
#define HOTBED_ADMIN_HTTP_PORT_H_

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::optional<std::string> accept;
  std::optional<std::string> user_agent;
  std::optional<std::string> authorization;
};

struct HttpResponse {
  int code = 200;
  const char* reason = "OK";
  const char* type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string location = {};
  const char* content_policy = nullptr;  // the Content-Security-Policy of a page
  const char* challenge = nullptr;       // WWW-Authenticate, of a 401
};

class HttpPort {
 public:
  static constexpr size_t kConnectionsMax = 128;
  static constexpr size_t kHeadBytesMax = 8192;
  static constexpr int64_t kHeadNsMax = 2'000'000'000;
  static constexpr int64_t kAnswerNsMax = 15'000'000'000;
  static constexpr size_t kPagesWaitingMax = 16;
  static constexpr size_t kAnswerBytesMax = 64 << 20;

  // `probe` must not block; it leaves to `page` what it does not answer.
  using Probe = std::function<std::optional<HttpResponse>(const HttpRequest&)>;
  using Page = std::function<HttpResponse(const HttpRequest&)>;

  // `listen`: HOST:PORT, [IPv6]:PORT, or :PORT for loopback. InvalidArgument or Unavailable names
  // it.
  static absl::StatusOr<std::unique_ptr<HttpPort>> Start(const std::string& listen, Probe probe,
                                                         Page page);
  ~HttpPort();
  HttpPort(const HttpPort&) = delete;
  HttpPort& operator=(const HttpPort&) = delete;
  const std::string& address() const { return address_; }  // as bound

 private:
  struct Connection {
    enum class State { kReading, kWaiting, kWriting, kClosing };
    State state = State::kReading;
    int fd = -1;
    std::string peer;  // its address
    int64_t until_ns = 0;
    bool head_only = false;
    std::string in;
    std::string out;
    size_t sent = 0;
  };
  using Number = uint64_t;  // of a connection, in the order of arrival

  HttpPort(Probe probe, Page page) : probe_(std::move(probe)), page_(std::move(page)) {}
  absl::Status Listen(const std::string& listen);

  // --- the thread of all connections
  void Serve();
  void AcceptAll();
  void MakeRoom();
  void Drop(Number number);
  void OnReadable(Number number, Connection* connection);
  void OnRequest(Number number, Connection* connection, const HttpRequest& request);
  void Answer(Connection* connection, const HttpResponse& response);
  void Write(Number number, Connection* connection);
  void TakePages();
  void EndLate(int64_t now_ns);
  size_t AnswerBytes() const;

  // --- the thread of pages
  void MakePages();
  void Wake() const;

  const Probe probe_;
  const Page page_;
  std::string address_;
  int listener_ = -1;
  int wake_ = -1;     // eventfd: pages are made, or the end
  int reserve_ = -1;  // closed to accept a connection when no descriptor is left
  Number arrived_ = 0;
  std::map<Number, Connection> connections_;

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::pair<Number, HttpRequest>> asked_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<Number, HttpResponse>> made_ ABSL_GUARDED_BY(mu_);
  std::thread serving_;
  std::thread making_;
};

}  // namespace hotbed

#endif  // HOTBED_ADMIN_HTTP_PORT_H_
