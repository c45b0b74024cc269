// A relay of TCP connections to one address, for tests: it passes bytes on, holds them back, or
// cuts all connections.
#ifndef HOTBED_TESTS_SERVER_TCP_GATE_H_
#define HOTBED_TESTS_SERVER_TCP_GATE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hotbed {

class TcpGate {
 public:
  explicit TcpGate(const std::string& target) {
    CHECK_OR_ABORT(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port_));
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = Loopback(0);
    CHECK_OR_ABORT(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0);
    CHECK_OR_ABORT(listen(listener_, 16) == 0);
    socklen_t size = sizeof(at);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpGate() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Hold(bool hold) { hold_ = hold; }  // bytes are not read any more
  void Cut() { cut_ = true; }             // all connections open now
  int connections() const { return connections_; }

 private:
  static void CHECK_OR_ABORT(bool good) {
    if (!good) std::abort();
  }
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  void Accept() {
    const int from = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in at = Loopback(target_port_);
    if (connect(to, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) {
      close(from);
      close(to);
      return;
    }
    const int on = 1;
    for (const int s : {from, to}) setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ++connections_;
    pairs_.emplace_back(from, to);
  }
  // False: one side has closed.
  static bool Relay(int from, int to) {
    static thread_local char buffer[1 << 16];
    const ssize_t n = read(from, buffer, sizeof(buffer));
    if (n <= 0) return false;
    for (ssize_t at = 0; at < n;) {
      const ssize_t sent = send(to, buffer + at, n - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
    }
    return true;
  }
  void CloseAt(size_t i) {
    close(pairs_[i].first);
    close(pairs_[i].second);
    pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
  }
  void Run() {
    while (!stop_) {
      if (cut_.exchange(false)) {
        while (!pairs_.empty()) CloseAt(0);
      }
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      if (!hold_) {
        for (const auto& [a, b] : pairs_) {
          polled.push_back({a, POLLIN, 0});
          polled.push_back({b, POLLIN, 0});
        }
      }
      poll(polled.data(), polled.size(), 2);
      for (size_t i = polled.size() / 2; i > 0; --i) {
        const auto [a, b] = pairs_[i - 1];
        const bool good = (polled[2 * i - 1].revents == 0 || Relay(a, b)) &&
                          (polled[2 * i].revents == 0 || Relay(b, a));
        if (!good) CloseAt(i - 1);
      }
      if (polled[0].revents != 0) Accept();
    }
    while (!pairs_.empty()) CloseAt(0);
  }

  int target_port_ = 0;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> hold_{false};
  std::atomic<bool> cut_{false};
  std::atomic<int> connections_{0};
  std::vector<std::pair<int, int>> pairs_;  // of the thread
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_TCP_GATE_H_
