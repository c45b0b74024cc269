// hotbed-fault-proxy: stands between two programs and makes their TCP connections bad.
//
//   hotbed-fault-proxy LISTEN_HOST PORT TARGET_HOST PORT [SEED]
//
// Commands on stdin, one per line, each answered on stdout by "ok" or by an error:
//   delay MS JITTER_MS   bytes are passed on that much later, in order
//   loss P               a connection is reset with this chance at each read of it
//   reset                all connections are reset now
//   stall up|down|both   nothing is read from that side any more: half-open to the sender
//   refuse on|off        new connections are reset at once
//   clear                none of the above
//   stats                connections, bytes up and down, resets
// Ends with its stdin. IPv4; one thread; at most kQueuedBytesMax per direction wait in it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/random.h"

namespace hotbed {
namespace {

constexpr size_t kQueuedBytesMax = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;
enum Direction { kUp = 0, kDown = 1 };  // from who connected, from the target

struct Faults {
  int64_t delay_ns = 0;
  int64_t jitter_ns = 0;
  double loss = 0;
  std::array<bool, 2> stalled = {};
  bool refuse = false;
};

struct Piece {
  int64_t due_ns = 0;
  std::string bytes;
};

struct Flow {
  std::deque<Piece> pieces;
  size_t sent = 0;  // of the first piece
  size_t queued = 0;
  bool ended = false;   // the reader saw the end
  bool closed = false;  // and it was passed on
};

struct Connection {
  std::array<int, 2> fds = {-1, -1};  // flow d reads fds[d], writes fds[1 - d]
  std::array<Flow, 2> flows;
  bool connected = false;
  bool dead = false;
};

class Proxy {
 public:
  Proxy(sockaddr_in listen, sockaddr_in target, uint64_t seed) : target_(target), random_(seed) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener_, reinterpret_cast<sockaddr*>(&listen), sizeof(listen)) != 0 ||
        ::listen(listener_, 128) != 0) {
      std::fprintf(stderr, "hotbed-fault-proxy: listening: %s\n", std::strerror(errno));
      std::exit(1);
    }
  }

  int Run() {
    std::printf("serving\n");
    std::fflush(stdout);
    while (!stdin_ended_) Turn();
    return 0;
  }

 private:
  void Turn() {
    std::vector<pollfd> polled = {{STDIN_FILENO, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& c : connections_) {
      for (int d : {kUp, kDown}) polled.push_back({c.fds[d], Wanted(c, d), 0});
    }
    poll(polled.data(), polled.size(), TimeoutMs());
    if (polled[0].revents != 0) ReadCommands();
    size_t next = 2;
    for (Connection& c : connections_) {
      for (int d : {kUp, kDown}) Serve(&c, d, polled[next++].revents);
    }
    if ((polled[1].revents & POLLIN) != 0) Accept();
    connections_.remove_if([this](Connection& c) { return Finished(&c); });
  }

  int16_t Wanted(const Connection& c, int d) const {
    int16_t wanted = 0;
    const Flow& in = c.flows[d];
    if (!faults_.stalled[d] && !in.ended && in.queued < kQueuedBytesMax) wanted |= POLLIN;
    const Flow& out = c.flows[1 - d];
    const bool due = !out.pieces.empty() && out.pieces.front().due_ns <= Now();
    if (due || (d == kDown && !c.connected)) wanted |= POLLOUT;
    return wanted;
  }

  int TimeoutMs() const {
    int64_t due = Now() + 200'000'000;
    for (const Connection& c : connections_) {
      for (const Flow& flow : c.flows) {
        if (!flow.pieces.empty()) due = std::min(due, flow.pieces.front().due_ns);
      }
    }
    return static_cast<int>(std::max<int64_t>(0, (due - Now() + 999'999) / 1'000'000));
  }

  void Serve(Connection* c, int d, int16_t events) {
    if (c->dead) return;
    if (d == kDown && !c->connected) {
      if ((events & (POLLOUT | POLLERR | POLLHUP)) == 0) return;
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(c->fds[kDown], SOL_SOCKET, SO_ERROR, &error, &size);
      c->dead = error != 0;
      c->connected = error == 0;
      if (c->dead) return;
    }
    // Acted on also while a side is stalled: a reset must get through.
    if ((events & POLLERR) != 0 || ((events & POLLHUP) != 0 && faults_.stalled[d])) c->dead = true;
    if ((events & POLLIN) != 0) Read(c, d);
    if (c->connected && !c->dead) Write(c, 1 - d);
  }

  void Read(Connection* c, int d) {
    char buffer[kReadBytes];
    const ssize_t got = read(c->fds[d], buffer, sizeof(buffer));
    if (got < 0) {
      c->dead = errno != EAGAIN && errno != EINTR;
      return;
    }
    Flow& flow = c->flows[d];
    if (got == 0) {
      flow.ended = true;
      return;
    }
    bytes_[d] += static_cast<uint64_t>(got);
    if (faults_.loss > 0 && random_.Double() < faults_.loss) {
      c->dead = true;
      return;
    }
    int64_t due = Now() + faults_.delay_ns;
    if (faults_.jitter_ns > 0) {
      due += static_cast<int64_t>(random_.Uniform(static_cast<uint64_t>(faults_.jitter_ns)));
    }
    if (!flow.pieces.empty()) due = std::max(due, flow.pieces.back().due_ns);
    flow.pieces.push_back({due, std::string(buffer, static_cast<size_t>(got))});
    flow.queued += static_cast<size_t>(got);
  }

  // Flow `d` to its other end, as far as it takes it.
  void Write(Connection* c, int d) {
    Flow& flow = c->flows[d];
    const int fd = c->fds[1 - d];
    while (!flow.pieces.empty() && flow.pieces.front().due_ns <= Now()) {
      const std::string& bytes = flow.pieces.front().bytes;
      const ssize_t sent =
          send(fd, bytes.data() + flow.sent, bytes.size() - flow.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) {
        c->dead = errno != EAGAIN && errno != EINTR;
        return;
      }
      flow.sent += static_cast<size_t>(sent);
      flow.queued -= static_cast<size_t>(sent);
      if (flow.sent < bytes.size()) return;
      flow.pieces.pop_front();
      flow.sent = 0;
    }
    if (flow.ended && !flow.closed && flow.pieces.empty()) {
      shutdown(fd, SHUT_WR);
      flow.closed = true;
    }
  }

  bool Finished(Connection* c) {
    if (!c->dead && !(c->flows[kUp].closed && c->flows[kDown].closed)) return false;
    for (const int fd : c->fds) {
      if (c->dead) Reset(fd);
      close(fd);
    }
    resets_ += c->dead;
    return true;
  }

  // close() then sends a reset instead of an orderly end.
  static void Reset(int fd) {
    const linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }

  void Accept() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    ++accepted_;
    if (faults_.refuse) {
      Reset(fd);
      close(fd);
      return;
    }
    const int target = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Connection& c = connections_.emplace_back();
    c.fds = {fd, target};
    if (connect(target, reinterpret_cast<sockaddr*>(&target_), sizeof(target_)) != 0 &&
        errno != EINPROGRESS) {
      c.dead = true;
    }
  }

  void ReadCommands() {
    char buffer[4096];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    stdin_ended_ = got <= 0;
    if (got > 0) commands_.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = commands_.find('\n')) != std::string::npos;) {
      std::printf("%s\n", Obey(commands_.substr(0, end)).c_str());
      std::fflush(stdout);
      commands_.erase(0, end + 1);
    }
  }

  std::string Obey(const std::string& line) {
    std::istringstream in(line);
    std::string word, what;
    in >> word;
    if (word == "delay") {
      double ms = 0, jitter_ms = 0;
      if (!(in >> ms >> jitter_ms)) return "delay MS JITTER_MS";
      faults_.delay_ns = static_cast<int64_t>(ms * 1e6);
      faults_.jitter_ns = static_cast<int64_t>(jitter_ms * 1e6);
    } else if (word == "loss") {
      if (!(in >> faults_.loss)) return "loss P";
    } else if (word == "reset") {
      for (Connection& c : connections_) c.dead = true;
    } else if (word == "stall" && in >> what &&
               (what == "up" || what == "down" || what == "both")) {
      faults_.stalled = {what != "down", what != "up"};
    } else if (word == "refuse" && in >> what && (what == "on" || what == "off")) {
      faults_.refuse = what == "on";
    } else if (word == "clear") {
      faults_ = {};
    } else if (word == "stats") {
      std::ostringstream out;
      out << "connections " << connections_.size() << " accepted " << accepted_ << " up "
          << bytes_[kUp] << " down " << bytes_[kDown] << " resets " << resets_;
      return out.str();
    } else {
      return "unknown command \"" + line + "\"";
    }
    return "ok";
  }

  static int64_t Now() { return Clock::Real()->NowNs(); }

  sockaddr_in target_;
  Random random_;
  int listener_ = -1;
  Faults faults_;
  std::list<Connection> connections_;
  std::string commands_;
  bool stdin_ended_ = false;
  std::array<uint64_t, 2> bytes_ = {};
  uint64_t accepted_ = 0;
  uint64_t resets_ = 0;
};

sockaddr_in Address(const char* host, const char* port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    std::fprintf(stderr, "hotbed-fault-proxy: \"%s\" is no IPv4 address\n", host);
    std::exit(2);
  }
  return address;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: see the head of tests/fault/tcp_proxy.cc\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  hotbed::Proxy proxy(hotbed::Address(argv[1], argv[2]), hotbed::Address(argv[3], argv[4]),
                      argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 1);
  return proxy.Run();
}
