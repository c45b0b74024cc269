// A port that speaks HTTP/1: the admin port, and lookups of serving servers.
//
// One thread accepts, reads and writes for all connections, in turns, with TLS if there is a
// certificate, and answers probes itself: a silent, dripping or slow client occupies a place in a
// table and no thread. Pages, which may take long, are made by other threads.
//
// Limits: kConnectionsMax connections, of which a further one takes the place of the oldest of the
// peer with most, of one without a request if there is such; kHeadBytesMax for a head, kAnswerNsMax
// for reading an answer; and those of HttpPortOptions. One descriptor is kept in reserve, so that
// probes are answered in a process that has run out of them.
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
#include "admin/http_request.h"
#include "admin/http_tls.h"

namespace hotbed {

struct HttpPortOptions {
  std::string listen;               // HOST:PORT, [IPv6]:PORT, or :PORT for loopback
  const char* name = "admin port";  // in the log and in errors
  const char* flag = "admin-listen";
  std::string tls_certificate;  // a file; empty: no TLS
  std::string tls_key;
  int64_t request_ns_max =
      2'000'000'000;              // from its first byte, or the connection's begin, to its end
  uint64_t body_bytes_max = 0;    // of a request; 0: GET and HEAD alone are taken
  uint64_t bodies_bytes_max = 0;  // of all that are being read or wait
  size_t answers_bytes_max = 64 << 20;  // of answers that are being read; beyond it 503
  size_t waiting_max = 16;              // requests that no thread has taken
  // A connection without a request stays open for so long. 0: it is closed after the first answer.
  int64_t idle_ns_max = 0;
  int threads = 1;  // that make pages
  int nice = 10;    // of these threads
  // The answer to a request that the port itself refuses; empty: the text of `why`.
  std::function<HttpResponse(int code, const absl::Status& why)> refusal;
  std::function<void(int code)> answered;  // sees each answer; must not block
};

class HttpPort {
 public:
  static constexpr size_t kConnectionsMax = 128;
  static constexpr size_t kHeadBytesMax = 8192;
  static constexpr int64_t kAnswerNsMax = 15'000'000'000;

  // `probe` must not block; it leaves to `page` what it does not answer, and may be empty. `page`
  // is called by several threads where there are several.
  using Probe = std::function<std::optional<HttpResponse>(const HttpRequest&)>;
  using Page = std::function<HttpResponse(const HttpRequest&)>;

  // InvalidArgument or Unavailable names the address.
  static absl::StatusOr<std::unique_ptr<HttpPort>> Start(HttpPortOptions options, Probe probe,
                                                         Page page);
  ~HttpPort();
  HttpPort(const HttpPort&) = delete;
  HttpPort& operator=(const HttpPort&) = delete;
  const std::string& address() const { return address_; }  // as bound
  // Takes no further connection, answers the requests that have come, each as the last one of its
  // connection, and those that come on open connections within `idle_ns`; returns once all
  // connections are closed. False: some were not within `limit_ns`.
  bool Drain(int64_t idle_ns, int64_t limit_ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Connection {
    enum class State { kReading, kWaiting, kWriting, kClosing };
    State state = State::kReading;
    std::unique_ptr<HttpBytes> bytes;
    std::string peer;  // its address
    int64_t until_ns = 0;
    bool idle = false;  // no byte of the next request is here
    bool head_only = false;
    bool keeps_open = false;
    std::optional<HttpHead> head;  // of the request that is being read
    size_t head_bytes = 0;
    std::string in;
    std::string out;
    size_t sent = 0;
  };
  using Number = uint64_t;  // of a connection, in the order of arrival

  HttpPort(HttpPortOptions options, Probe probe, Page page)
      : options_(std::move(options)), probe_(std::move(probe)), page_(std::move(page)) {}
  absl::Status Listen(const std::string& listen);

  // --- the thread of all connections
  void Serve();
  void AcceptSome();
  void MakeRoom();
  void Drop(Number number);
  void OnReadable(Number number, Connection* connection);
  // Takes the next request out of `in`, if it is complete.
  void TakeRequest(Number number, Connection* connection);
  // False: the request is refused, or its head is not complete.
  bool TakeHead(Number number, Connection* connection);
  void OnRequest(Number number, Connection* connection, HttpRequest request);
  void Answer(Connection* connection, const HttpResponse& response);
  // The connection is closed after the answer.
  void Refuse(Number number, Connection* connection, int code, const absl::Status& why);
  void Write(Number number, Connection* connection);
  void AwaitRequest(Number number, Connection* connection);
  bool TakePages();  // false: it stops
  void BeginDrain(int64_t idle_ns);
  void NoteDrained();
  void EndLate(int64_t now_ns);
  size_t AnswerBytes() const;
  uint64_t BodyBytes() ABSL_LOCKS_EXCLUDED(mu_);

  // --- the threads of pages
  void MakePages();
  void Wake() const;

  const HttpPortOptions options_;
  const Probe probe_;
  const Page page_;
  std::string address_;
  std::unique_ptr<HttpTls> tls_;  // of the thread of all connections; null: in the clear
  int listener_ = -1;
  int wake_ = -1;     // eventfd: pages are made, or the end
  int reserve_ = -1;  // closed to accept a connection when no descriptor is left
  Number arrived_ = 0;
  bool drains_ = false;
  std::map<Number, Connection> connections_;

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  int64_t drain_idle_ns_ ABSL_GUARDED_BY(mu_) = -1;  // -1: it does not drain
  bool drained_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::pair<Number, HttpRequest>> asked_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<Number, HttpResponse>> made_ ABSL_GUARDED_BY(mu_);
  uint64_t asked_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // bodies of asked_
  std::thread serving_;
  std::vector<std::thread> making_;
};

}  // namespace hotbed

#endif  // HOTBED_ADMIN_HTTP_PORT_H_
