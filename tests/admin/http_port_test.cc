#include "admin/http_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/dial.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace http_port_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Client {
 public:
  explicit Client(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  ~Client() { close(fd_); }
  static bool CanConnect(const std::string& address) {
    const absl::StatusOr<int> fd = Dial(address, absl::Seconds(60));
    if (fd.ok()) close(*fd);
    return fd.ok();
  }

  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads until `text` has come, and returns all that was read since the last call; or until the
  // other side closes.
  std::string ReadUntil(const std::string& text) {
    size_t at = std::string::npos;
    char buffer[4096];
    while ((at = in_.find(text)) == std::string::npos) {
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return std::exchange(in_, "");
      in_.append(buffer, static_cast<size_t>(n));
    }
    std::string out = in_.substr(0, at + text.size());
    in_.erase(0, out.size());
    return out;
  }
  std::string ReadAll() { return ReadUntil("there is no such text"); }

 private:
  const int fd_;
  std::string in_;
};

std::string Post(const std::string& body, const std::string& headers = "") {
  return absl::StrCat("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n",
                      headers, "\r\n", body);
}

class HttpPortTest : public ::testing::Test {
 protected:
  // Answers "[METHOD BODY]".
  void Start(HttpPortOptions options) {
    options.listen = "127.0.0.1:0";
    options.body_bytes_max = 100'000;
    if (options.bodies_bytes_max == 0) options.bodies_bytes_max = 1'000'000;
    options.idle_ns_max = 60 * kSecondNs;
    options.threads = 2;
    options.refusal = [](int code, const absl::Status& why) {
      return HttpResponse{.code = code, .body = absl::StrCat("refused: ", why.message())};
    };
    options.answered = [this](int code) {
      ++answers_;
      last_code_ = code;
      if (code == 503) refused_busy_ = true;
    };
    auto port = HttpPort::Start(std::move(options), nullptr, [](const HttpRequest& request) {
      return HttpResponse{.body = absl::StrCat("[", request.method, " ", request.body, "]")};
    });
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }
  void SetUp() override { Start({}); }
  std::string Refused(const std::string& bytes) {
    Client client(port_->address());
    client.Send(bytes);
    return client.ReadAll();
  }

  std::unique_ptr<HttpPort> port_;
  std::atomic<int> answers_{0};
  std::atomic<int> last_code_{0};
  std::atomic<bool> refused_busy_{false};
};

TEST_F(HttpPortTest, AConnectionTakesRequestAfterRequest) {
  Client client(port_->address());
  for (int i = 0; i < 3; ++i) {
    client.Send(Post(absl::StrCat("body", i)));
    const std::string answer = client.ReadUntil("]");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
    EXPECT_THAT(answer, HasSubstr(absl::StrCat("[POST body", i, "]")));
  }
  // Two at once; the second one says that it is the last.
  client.Send(Post("a") + Post("b", "Connection: close\r\n"));
  EXPECT_THAT(client.ReadUntil("]"), HasSubstr("[POST a]"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("[POST b]"));
  EXPECT_EQ(answers_, 5);
}

TEST_F(HttpPortTest, ABodyComesInPieces) {
  Client client(port_->address());
  const std::string body(70'000, 'x');
  const std::string request = Post(body, "Expect: 100-continue\r\n");
  const size_t head = request.find("\r\n\r\n") + 4;
  client.Send(request.substr(0, head - 10));
  client.Send(request.substr(head - 10, 10));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  for (size_t at = head; at < request.size(); at += 9'999) client.Send(request.substr(at, 9'999));
  EXPECT_THAT(client.ReadUntil("]"), HasSubstr(absl::StrCat("[POST ", body, "]")));
}

TEST(HttpHeadTest, AnAbsoluteUriHasAPathToo) {
  for (const auto& [target, path] : std::initializer_list<std::pair<std::string, std::string>>{
           {"/v1/tables?x=/y", "/v1/tables"},
           {"http://x:80/v1/tables?y", "/v1/tables"},
           {"HTTPS://x/", "/"},
           {"http://x", "/"},
           {"http://x?y=/z", "/"},
           {"/http://x/y", "/http://x/y"}}) {
    const absl::StatusOr<HttpHead> head =
        ParseHttpHead(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x"));
    ASSERT_TRUE(head.ok()) << target;
    EXPECT_EQ(head->request.path, path) << target;
  }
  EXPECT_THAT(std::string(ParseHttpHead("GET /x").status().message()),
              HasSubstr("its first line is \"GET /x\""));
}

TEST_F(HttpPortTest, WhatIsNotTakenIsRefusedWithItsCode) {
  const std::string head = "POST /x HTTP/1.1\r\nHost: x\r\n";
  EXPECT_THAT(Refused(head + "Content-Length: 100001\r\n\r\n"),
              HasSubstr("refused: the body has 100001 bytes, the limit is 100000"));
  EXPECT_EQ(last_code_, 413);
  EXPECT_THAT(Refused(head + "Transfer-Encoding: chunked\r\n\r\n"), StartsWith("HTTP/1.1 411 "));
  EXPECT_THAT(Refused(head + "\r\n"), StartsWith("HTTP/1.1 411 "));
  EXPECT_THAT(Refused(head + "Content-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc"),
              StartsWith("HTTP/1.1 415 "));
  const std::string other_method = Refused("DELETE /x HTTP/1.1\r\n\r\n");
  EXPECT_THAT(other_method, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(other_method, HasSubstr("\r\nAllow: GET, HEAD, POST\r\n"));
  EXPECT_THAT(Refused(head + "Content-Length: -1\r\n\r\n"),
              HasSubstr("refused: Content-Length is \"-1\"; allowed: 1 to 19 digits"));
  EXPECT_THAT(Refused(head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
              HasSubstr("Content-Length is 3 and 4; allowed: one number"));
  for (const char* bad : {"Content-Length: 3\r\nContent-Length: 4\r\n", "Content-Length: -1\r\n",
                          "Content-Length: 99999999999999999999\r\n", "Content-Length: \r\n",
                          "Content-Length : 3\r\n", " Content-Length: 3\r\n",
                          "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"}) {
    EXPECT_THAT(Refused(absl::StrCat(head, bad, "\r\nabc")), StartsWith("HTTP/1.1 400 ")) << bad;
  }
  EXPECT_THAT(Refused(head + std::string(HttpPort::kHeadBytesMax, 'x')),
              HasSubstr("refused: no HTTP request: its head is above 8192 bytes"));
}

TEST_F(HttpPortTest, ARequestThatIsNeverCompleteIsEnded) {
  Start({.request_ns_max = 50 * kMillisecondNs});
  std::string answer;
  while (answer.empty()) {  // its bytes came after the 50 ms
    answer = Refused("POST /x HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(answer, HasSubstr("refused: the request was not complete within 50 ms"));
}

TEST_F(HttpPortTest, BodiesThatAreBeingReadHaveABoundInAll) {
  Start({.request_ns_max = 60 * kSecondNs, .bodies_bytes_max = 50'000});
  Client holder(port_->address());
  holder.Send("POST /x HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(40'000, 'x'));
  // Whose bytes come last is refused: those of the holder, or of one of the others.
  const std::string large = Post(std::string(20'000, 'y'));
  for (int tries = 0; tries < 1000 && !refused_busy_; ++tries) {
    Client client(port_->address());
    client.Send(large);
    client.ReadUntil("]");
  }
  EXPECT_TRUE(refused_busy_) << "the bodies exceeded their bound, and nobody was told";
}

TEST_F(HttpPortTest, IdleConnectionsMakeRoomAndOthersAreAnswered) {
  std::vector<std::unique_ptr<Client>> idle;
  for (size_t i = 0; i < HttpPort::kConnectionsMax + 20; ++i) {
    idle.push_back(std::make_unique<Client>(port_->address()));
    idle.back()->Send(Post("hello"));
    EXPECT_THAT(idle.back()->ReadUntil("]"), HasSubstr("[POST hello]")) << i;
  }
}

class HttpPortDrainTest : public HttpPortTest {
 protected:
  // Requests wait until `answer_`, and are counted when they begin to.
  void SetUp() override {
    auto port = HttpPort::Start(
        {.listen = "127.0.0.1:0",
         .request_ns_max = 60 * kSecondNs,
         .body_bytes_max = 1000,
         .bodies_bytes_max = 1000,
         .idle_ns_max = 60 * kSecondNs},
        [](const HttpRequest& request) -> std::optional<HttpResponse> {
          if (request.body == "later") return std::nullopt;
          return HttpResponse{.body = absl::StrCat("[", request.body, "]")};
        },
        [this](const HttpRequest&) {
          waits_.Notify();
          answer_.WaitForNotification();
          return HttpResponse{.body = "[late]"};
        });
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }
  void AwaitRefusal() {
    while (Client::CanConnect(port_->address())) Clock::Real()->SleepNs(kMillisecondNs);
  }
  absl::Notification waits_, answer_;
};

TEST_F(HttpPortDrainTest, AnswersAllThatHasComeAndClosesAllConnections) {
  Client waiting(port_->address()), open(port_->address()), half(port_->address());
  const std::string head = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n";
  open.Send(Post("first"));
  EXPECT_THAT(open.ReadUntil("[first]"), Not(HasSubstr("Connection: close")));
  half.Send(head);
  waiting.Send(Post("later"));
  waits_.WaitForNotification();
  bool drained = false;
  std::thread drains([&] { drained = port_->Drain(60 * kSecondNs, 600 * kSecondNs); });
  AwaitRefusal();
  answer_.Notify();
  open.Send(Post("second") + Post("third"));
  half.Send("h");
  EXPECT_THAT(waiting.ReadAll(), AllOf(HasSubstr("Connection: close"), HasSubstr("[late]")));
  EXPECT_THAT(open.ReadUntil("[second]"), Not(HasSubstr("Connection: close")));
  EXPECT_THAT(open.ReadAll(), AllOf(HasSubstr("Connection: close"), HasSubstr("[third]")));
  EXPECT_THAT(half.ReadAll(), AllOf(HasSubstr("Connection: close"), HasSubstr("[h]")));
  drains.join();
  EXPECT_TRUE(drained);
}

TEST_F(HttpPortDrainTest, EndsIdleConnections) {
  Client open(port_->address()), silent(port_->address());
  open.Send(Post("first"));
  open.ReadUntil("[first]");
  EXPECT_TRUE(port_->Drain(0, 600 * kSecondNs));
  EXPECT_EQ(open.ReadAll() + silent.ReadAll(), "");
  EXPECT_TRUE(port_->Drain(0, 600 * kSecondNs)) << "nothing is left";
}

TEST_F(HttpPortDrainTest, WaitsNoLongerThanItsLimit) {
  Client waiting(port_->address());
  waiting.Send(Post("later"));
  waits_.WaitForNotification();
  EXPECT_FALSE(port_->Drain(0, kMillisecondNs));
  answer_.Notify();
  port_.reset();
}

// The thread of the connections must not read away the wake-up by which it is told to stop.
TEST_F(HttpPortTest, StopsWhileItsLastConnectionGoes) {
  for (int64_t i = 0; i < 1000; ++i) {
    Start({});
    Client(port_->address()).Send("GET");
    const int64_t stop_ns = Clock::Real()->NowNs() + i % 200 * 1000;
    while (Clock::Real()->NowNs() < stop_ns) {
    }
    if (i % 2 == 0) {
      EXPECT_TRUE(port_->Drain(0, 600 * kSecondNs));
    }
    port_.reset();
  }
  EXPECT_EQ(answers_, 0);
}

TEST(HttpRequestTest, EscapesInPathsAreRead) {
  EXPECT_EQ(UnescapePath("a%2Fb%41"), "a/bA");
  EXPECT_EQ(UnescapePath(""), "");
  for (const char* bad : {"%", "%4", "%zz", "a%"})
    EXPECT_EQ(UnescapePath(bad), std::nullopt) << bad;
}

}  // namespace http_port_test
}  // namespace hotbed
