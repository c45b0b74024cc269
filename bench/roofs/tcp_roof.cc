// Plain blocking TCP: one connection, one thread per side.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/roofs/gather.h"
#include "bench/roofs/peer_process.h"
#include "bench/roofs/roofs.h"
#include "bench/roofs/stopwatch.h"
#include "common/huge_buffer.h"
#include "common/status_macros.h"

namespace hotbed::roofs {
namespace {

bool ReadAll(int socket, uint8_t* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = read(socket, to, bytes);
    if (n <= 0) return false;
    to += n;
    bytes -= n;
  }
  return true;
}

bool WriteAll(int socket, const uint8_t* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    from += n;
    bytes -= n;
  }
  return true;
}

void NoDelay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

class Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> To(int port) {
    auto connection = std::make_unique<Connection>();
    const sockaddr_in address = Loopback(port);
    if (connect(connection->socket_, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
      return absl::UnavailableError("cannot connect to the peer of a TCP roof");
    }
    NoDelay(connection->socket_);
    return connection;
  }
  Connection() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Connection() { close(socket_); }
  int socket() const { return socket_; }

 private:
  int socket_;
};

// Keeps `in_flight` requests open: sends that many, then one per reply. The messages in `requests`
// are sent in turn.
absl::StatusOr<MessageRate> RunClient(int port, const std::vector<std::vector<uint8_t>>& requests,
                                      uint64_t reply_bytes, int in_flight, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const auto connection, Connection::To(port));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer reply, HugeBuffer::Allocate(reply_bytes));
  const int socket = connection->socket();
  size_t sent = 0;
  const auto send_one = [&] {
    const std::vector<uint8_t>& request = requests[sent++ % requests.size()];
    return WriteAll(socket, request.data(), request.size());
  };
  bool alive = true;
  for (int i = 0; i < in_flight && alive; ++i) alive = send_one();
  uint64_t received = 0;
  const double begin = Seconds();
  double now = begin;
  for (; alive && now - begin < seconds; now = Seconds(), ++received) {
    alive = ReadAll(socket, reply.data(), reply_bytes) && send_one();
  }
  if (!alive) return absl::UnavailableError("the peer of a TCP roof went away");
  MessageRate rate;
  rate.messages_per_s = received / (now - begin);
  rate.bytes_per_s = rate.messages_per_s * (requests[0].size() + reply_bytes);
  return rate;
}

}  // namespace

// args: request bytes, reply bytes, rows (0: no gather), row bytes.
int ServeTcp(const std::vector<std::string>& args) {
  uint64_t numbers[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    if (args.size() <= i || !absl::SimpleAtoi(args[i], &numbers[i])) return 1;
  }
  const auto [request_bytes, reply_bytes, rows, row_bytes] = numbers;
  auto request = HugeBuffer::Allocate(request_bytes);
  auto reply = HugeBuffer::Allocate(reply_bytes);
  auto table = HugeBuffer::Allocate(rows * row_bytes);
  if (!request.ok() || !reply.ok() || !table.ok()) return 1;
  std::memset(request->data(), 1, request->size());
  std::memset(reply->data(), 1, reply->size());
  if (rows > 0) std::memset(table->data(), 1, table->size());
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 1;
  }
  TellPort(ntohs(address.sin_port));
  const int peer = accept(listener, nullptr, nullptr);
  NoDelay(peer);
  while (ReadAll(peer, request->data(), request_bytes)) {
    if (rows > 0) {
      GatherBatch(table->data(), row_bytes, reinterpret_cast<const uint64_t*>(request->data()),
                  request_bytes / 8, reply->data());
    }
    if (!WriteAll(peer, reply->data(), reply_bytes)) break;
  }
  return 0;
}

absl::StatusOr<MessageRate> TcpLoop(const MessageLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const auto peer,
                          PeerProcess::Start({"tcp", absl::StrCat(load.request_bytes),
                                              absl::StrCat(load.reply_bytes), "0", "0"}));
  return RunClient(peer->port(), {std::vector<uint8_t>(load.request_bytes, 1)}, load.reply_bytes,
                   load.in_flight, load.seconds);
}

absl::StatusOr<MessageRate> TcpGather(const GatherLoad& gather, int in_flight) {
  const uint64_t reply_bytes = gather.batch * gather.row_bytes;
  HOTBED_ASSIGN_OR_RETURN(
      const auto peer,
      PeerProcess::Start({"tcp", absl::StrCat(gather.batch * 8), absl::StrCat(reply_bytes),
                          absl::StrCat(gather.rows), absl::StrCat(gather.row_bytes)}));
  std::mt19937_64 random(1);
  std::vector<std::vector<uint8_t>> requests(256);
  for (std::vector<uint8_t>& request : requests) {
    request.resize(gather.batch * 8);
    for (uint64_t i = 0; i < gather.batch; ++i) {
      const uint64_t id = random() % gather.rows;
      std::memcpy(&request[i * 8], &id, 8);
    }
  }
  return RunClient(peer->port(), requests, reply_bytes, in_flight, gather.seconds);
}

}  // namespace hotbed::roofs
