#include "admin/admin_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "admin/http_port.h"
#include "common/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace admin_server_test {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

int PortOf(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return port;
}

int Connect(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// Sends `bytes` unchanged and returns everything received until the other side closes.
std::string Raw(const std::string& address, const std::string& bytes) {
  const int fd = Connect(address);
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string out;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) out.append(buffer, static_cast<size_t>(n));
  close(fd);
  return out;
}

std::string Get(const std::string& address, const std::string& path,
                const std::string& headers = "") {
  return Raw(address, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n"));
}

std::string Body(const std::string& response) {
  const size_t at = response.find("\r\n\r\n");
  return at == std::string::npos ? "" : response.substr(at + 4);
}

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AdminOptions options;
    options.healthy = [this](std::string* why) {
      if (!healthy_) *why = "the event loop has not turned for 12 s";
      return healthy_.load();
    };
    options.ready = [this] {
      return std::vector<ReadyCondition>{
          {"lease", true, "holds for 2.0 s"},
          {"shards", ready_.load(), ready_ ? "8 with the primary here" : "3 of 8 are not active"}};
    };
    options.status = [] {
      StatusPage page;
      page.title = "hotbed-server s1";
      page.subtitle = "127.0.0.1:7500";
      page.facts = {{"rows", "1,000"}};
      page.json = "{\"rows\":1000}";
      return page;
    };
    auto server = AdminServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  std::atomic<bool> healthy_{true};
  std::atomic<bool> ready_{true};
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, TellsThePortItGot) {
  EXPECT_THAT(server_->address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(PortOf(server_->address()), 0);
}

TEST_F(AdminServerTest, HealthAndReadinessAnswer200Or503WithTheReason) {
  EXPECT_THAT(Get(server_->address(), "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string ready = Get(server_->address(), "/readyz");
  EXPECT_THAT(ready, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(Body(ready), "ready\nlease: holds for 2.0 s\nshards: 8 with the primary here\n");
  ready_ = false;
  EXPECT_THAT(Get(server_->address(), "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  std::string response = Get(server_->address(), "/readyz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(Body(response), "shards: 3 of 8 are not active\n");
  healthy_ = false;
  response = Get(server_->address(), "/healthz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(Body(response), "the event loop has not turned for 12 s\n");
}

TEST(AdminServerTokenTest, PagesAskForATokenAndProbesDoNot) {
  AdminOptions options;
  options.may_read = [](absl::string_view token) { return token == "open sesame"; };
  options.pages = {{"/console", "text/html", [] { return "the console"; }}};
  const auto server = AdminServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  for (const char* path : {"/healthz", "/readyz"}) {
    EXPECT_THAT(Get(address, path), StartsWith("HTTP/1.1 200 OK\r\n")) << path;
  }
  for (const char* path :
       {"/", "/console", "/metrics", "/api/metrics", "/api/status", "/statusz"}) {
    for (const std::string& refused :
         {std::string(), std::string("Authorization: Bearer open\r\n"),
          std::string("Authorization: open sesame\r\n"),
          absl::StrCat("Authorization: Basic ", absl::Base64Escape("open sesame:x"), "\r\n"),
          std::string("Authorization: Basic !\r\n")}) {
      const std::string response = Get(address, path, refused);
      EXPECT_THAT(response, StartsWith("HTTP/1.1 401 Unauthorized\r\n")) << path << refused;
      EXPECT_THAT(response, HasSubstr("WWW-Authenticate: Basic realm="));
      EXPECT_THAT(Body(response), HasSubstr("--admin-tokens"));
    }
    for (const std::string& taken :
         {std::string("Authorization: Bearer open sesame\r\n"),
          absl::StrCat("authorization: Basic ", absl::Base64Escape("any:open sesame"), "\r\n")}) {
      const std::string response = Get(address, path, taken);
      EXPECT_THAT(response, MatchesRegex("HTTP/1.1 (200|302) (.|\r|\n)*")) << path << taken;
    }
  }
}

TEST_F(AdminServerTest, StatusIsHtmlForBrowsersTextForCurlAndJson) {
  const std::string html =
      Get(server_->address(), "/statusz", "Accept: text/html\r\nUser-Agent: Mozilla/5.0\r\n");
  EXPECT_THAT(html, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(Body(html), StartsWith("<!doctype html>"));
  const std::string text =
      Get(server_->address(), "/statusz", "Accept: */*\r\nUser-Agent: curl/7.88.1\r\n");
  EXPECT_THAT(text, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(Body(text), StartsWith("hotbed-server s1\n127.0.0.1:7500\n"));
  const std::string json = Get(server_->address(), "/api/status");
  EXPECT_THAT(json, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(nlohmann::json::parse(Body(json))["rows"], 1000);
}

TEST_F(AdminServerTest, RootLeadsToTheStatusPage) {
  const std::string response = Get(server_->address(), "/");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 302 "));
  EXPECT_THAT(response, HasSubstr("Location: /statusz\r\n"));
}

TEST_F(AdminServerTest, APageOfTheProcessLoadsNothingFromElsewhere) {
  AdminOptions options;
  options.pages = {{"/console", "text/html; charset=utf-8", [] { return "<p>hello"; }},
                   {"/api/numbers", "application/json", [] { return "[1]"; }}};
  const auto server = AdminServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const std::string page = Get(address, "/console");
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  EXPECT_EQ(Body(page), "<p>hello");
  EXPECT_EQ(Body(Get(address, "/api/numbers")), "[1]");
  EXPECT_THAT(Get(address, "/"), HasSubstr("Location: /console\r\n"));
  EXPECT_THAT(Get(address, "/nothing"), HasSubstr(" /console /api/numbers\n"));
}

TEST_F(AdminServerTest, UnknownPathsAndMethodsAreRefused) {
  const std::string missing = Get(server_->address(), "/etc/passwd");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(missing, HasSubstr("/statusz"));
  EXPECT_THAT(Get(server_->address(), "/metrics/../../etc/passwd"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(
      Raw(server_->address(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
      StartsWith("HTTP/1.1 405 "));
}

TEST_F(AdminServerTest, HeadSendsNoBody) {
  const std::string response = Raw(server_->address(), "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(Body(response), "");
}

TEST_F(AdminServerTest, GarbageDoesNotStopIt) {
  Raw(server_->address(), "\x01\x02garbage\r\n\r\n");
  EXPECT_THAT(Get(server_->address(), "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, MetricsCarryCountersHistogramsAndTheProcess) {
  static Counter* rows =
      new Counter("hotbed_admintest_rows_total", "Rows of the admin test.", {{"kind", "a\"b\\c"}});
  static LatencyHistogram* seconds =
      new LatencyHistogram("hotbed_admintest_seconds", "Time of the admin test.");
  rows->Add(41);
  rows->Add(1);
  seconds->RecordNs(1500);       // 1.5 us: above 1 us, below 2 us
  seconds->RecordNs(3'000'000);  // 3 ms
  const std::string body = Body(Get(server_->address(), "/metrics"));
  EXPECT_THAT(body, HasSubstr("# TYPE hotbed_admintest_rows_total counter\n"));
  EXPECT_THAT(body, HasSubstr("hotbed_admintest_rows_total{kind=\"a\\\"b\\\\c\"} 42\n"));
  EXPECT_THAT(body, HasSubstr("# TYPE hotbed_admintest_seconds histogram\n"));
  EXPECT_THAT(body, HasSubstr("hotbed_admintest_seconds_count 2\n"));
  EXPECT_THAT(body, HasSubstr("hotbed_admintest_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(body, HasSubstr("hotbed_build_info{"));
  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes",
                           "process_open_fds", "process_start_time_seconds"}) {
    EXPECT_THAT(body, HasSubstr(absl::StrCat("\n", name, " "))) << name;
  }
  const nlohmann::json all = nlohmann::json::parse(Body(Get(server_->address(), "/api/metrics")));
  bool found = false;
  for (const auto& one : all) {
    if (one["name"] == "hotbed_admintest_rows_total") {
      found = true;
      EXPECT_EQ(one["value"], 42);
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(AdminServerTest, HistogramBucketsAreCumulativeWithTheSameEdgesEveryTime) {
  static LatencyHistogram* seconds =
      new LatencyHistogram("hotbed_adminedges_seconds", "Edges of the admin test.");
  const auto buckets = [&] {
    std::vector<std::pair<double, double>> out;
    std::istringstream lines(Body(Get(server_->address(), "/metrics")));
    for (std::string line; std::getline(lines, line);) {
      double edge = 0, count = 0;
      if (std::sscanf(line.c_str(), "hotbed_adminedges_seconds_bucket{le=\"%lf\"} %lf", &edge,
                      &count) == 2) {
        out.emplace_back(edge, count);
      }
    }
    return out;
  };
  const auto before = buckets();
  ASSERT_EQ(before.size(), 28u);  // 27 powers of two and +Inf
  for (int64_t ns = 500; ns < 100'000'000'000; ns *= 3) seconds->RecordNs(ns);
  const auto after = buckets();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    if (i > 0) {
      EXPECT_GE(after[i].second, after[i - 1].second);
    }
  }
  // 3^k * 500 ns at or below 1.05 ms: k = 0..6, by hand.
  for (const auto& [edge, count] : after) {
    if (edge > 1.0e-3 && edge < 1.1e-3) {
      EXPECT_EQ(count, 7);
    }
  }
}

TEST_F(AdminServerTest, MetricsAreCleanUnderPromtool) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is missing (Debian package prometheus)";
  }
  const std::string path = ::testing::TempDir() + "/admin_metrics.txt";
  std::ofstream(path) << Body(Get(server_->address(), "/metrics"));
  FILE* tool = popen(absl::StrCat("promtool check metrics < ", path, " 2>&1").c_str(), "r");
  std::string said;
  char buffer[1024];
  while (fgets(buffer, sizeof(buffer), tool) != nullptr) said += buffer;
  EXPECT_EQ(pclose(tool), 0) << said;
  EXPECT_EQ(said, "");
}

TEST_F(AdminServerTest, PortInUseNamesTheAddress) {
  AdminOptions options;
  options.listen = server_->address();
  const auto second = AdminServer::Start(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
}

TEST(AdminServerStart, BadAddressesAreNamed) {
  for (const char* listen :
       {"nonsense", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:80x", "::1:80"}) {
    AdminOptions options;
    options.listen = listen;
    const auto server = AdminServer::Start(std::move(options));
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(listen));
  }
}

TEST_F(AdminServerTest, ManyReadersAtOnceAllGetAnswers) {
  std::atomic<int> answered{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      for (int k = 0; k < 10; ++k) {
        if (absl::StartsWith(Get(server_->address(), "/metrics"), "HTTP/1.1 200")) ++answered;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(answered, 80);
}

// Silent connections, ones that drip, and one that never reads its answer: probes are answered all
// the same, and at once.
TEST_F(AdminServerTest, SlowClientsHoldNoProbeUp) {
  std::vector<int> held;
  for (size_t i = 0; i < 3 * HttpPort::kConnectionsMax; ++i) {
    held.push_back(Connect(server_->address()));
    if (i % 3 == 1) send(held.back(), "GET /st", 7, MSG_NOSIGNAL);
    if (i % 3 == 2) send(held.back(), "GET /metrics HTTP/1.1\r\n\r\n", 25, MSG_NOSIGNAL);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Get(server_->address(), "/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(Get(server_->address(), "/readyz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  // 40 answers take some milliseconds. A thread per slow client made them take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  for (const int fd : held) close(fd);
}

TEST_F(AdminServerTest, ARequestThatDripsIsEnded) {
  const int fd = Connect(server_->address());
  char byte = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (send(fd, "G", 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) != 0) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(30)) {
      ADD_FAILURE() << "still open after 30 s; the limit is 2 s";
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  close(fd);
}

TEST_F(AdminServerTest, AnEndlessHeadIsRefused) {
  EXPECT_THAT(Raw(server_->address(), std::string(HttpPort::kHeadBytesMax + 1, 'x')),
              StartsWith("HTTP/1.1 400 "));
}

TEST(AdminServerStart, ListensOnIPv6) {
  AdminOptions options;
  options.listen = "[::1]:0";
  const auto server = AdminServer::Start(std::move(options));
  if (absl::IsUnavailable(server.status())) GTEST_SKIP() << "no IPv6 here: " << server.status();
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->address(), StartsWith("[::1]:"));
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(static_cast<uint16_t>(PortOf((*server)->address())));
  to.sin6_addr = in6addr_loopback;
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string ask = "GET /healthz HTTP/1.1\r\n\r\n";
  EXPECT_EQ(send(fd, ask.data(), ask.size(), MSG_NOSIGNAL), static_cast<ssize_t>(ask.size()));
  char answer[16] = "";
  EXPECT_EQ(recv(fd, answer, 15, MSG_WAITALL), 15);
  EXPECT_STREQ(answer, "HTTP/1.1 200 OK");
  close(fd);
}

}  // namespace admin_server_test
}  // namespace hotbed
