#include "ports/connection_table.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/log.h"

namespace hotbed {
namespace {

constexpr int64_t kMilliNs = 1'000'000;
constexpr int64_t kLookAgainNs = 100 * kMilliNs;
// Descriptors above are not taken.
constexpr int kDescriptorsMax = 1 << 17;

PeerName NameOf(const sockaddr* peer) {
  char text[INET6_ADDRSTRLEN] = "";
  PeerName name;
  in_addr v4 = {};
  uint16_t port = 0;
  if (peer->sa_family == AF_INET6) {
    const auto* const six = reinterpret_cast<const sockaddr_in6*>(peer);
    port = ntohs(six->sin6_port);
    if (!IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
      inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
      name.address = text;
      name.grpc = absl::StrCat("ipv6:%5B", text, "%5D:", port);
      return name;
    }
    std::copy_n(&six->sin6_addr.s6_addr[12], 4, reinterpret_cast<uint8_t*>(&v4));
  } else {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(peer);
    port = ntohs(four->sin_port);
    v4 = four->sin_addr;
  }
  inet_ntop(AF_INET, &v4, text, sizeof(text));
  name.address = text;
  name.grpc = absl::StrCat("ipv4:", text, ":", port);
  return name;
}

EndReason ReasonOf(Http2Meter::Verdict verdict) {
  switch (verdict) {
    case Http2Meter::Verdict::kNotHttp2:
      return EndReason::kNotHttp2;
    case Http2Meter::Verdict::kMessageTooLarge:
      return EndReason::kMessageTooLarge;
    case Http2Meter::Verdict::kHeadersTooLarge:
      return EndReason::kHeadersTooLarge;
    case Http2Meter::Verdict::kTooManyControlFrames:
      return EndReason::kControlFrames;
    default:
      return EndReason::kUnfinishedMessages;
  }
}

}  // namespace

struct ConnectionTable::Connection {
  Connection(std::shared_ptr<ConnectionTable> table, const Http2Limits& limits)
      : table(std::move(table)), meter(limits) {}

  const std::shared_ptr<ConnectionTable> table;
  int descriptor = -1;
  PeerName peer;
  int64_t accepted_ns = 0;
  Http2Meter meter;  // used by the thread that reads; gRPC reads a connection on one at a time
  std::atomic<uint64_t> counted{0};  // what of the meter's bytes is in unfinished_bytes_
  std::atomic<int64_t> received_ns{0};
  std::atomic<int64_t> unfinished_since_ns{0};
  std::atomic<bool> greeted{false};
  std::atomic<bool> ended{false};
};

namespace {

// The connections of all ports, by descriptor.
std::atomic<void*> of_descriptor[kDescriptorsMax];

}  // namespace

const char* EndReasonName(EndReason reason) {
  static constexpr const char* kNames[kEndReasons] = {
      "process_limit",    "peer_limit",   "peer_rate",      "descriptors",   "made_room",
      "not_http2",        "no_greeting",  "message_bytes",  "header_bytes",  "control_frames",
      "unfinished_bytes", "message_time", "unread_answers", "access_changed"};
  return kNames[static_cast<int>(reason)];
}

ConnectionTable::ConnectionTable(std::string port, const ConnectionLimits& limits,
                                 const Clock* clock)
    : limits_(limits),
      clock_(clock),
      accepted_("hotbed_port_accepted_total", "Connections accepted.", {{"port", port}}) {
  for (int i = 0; i < kEndReasons; ++i) {
    ended_[i] = std::make_unique<RareCounter>(
        "hotbed_port_ended_total", "Connections refused or ended by this process, by reason.",
        Labels{{"port", port}, {"reason", EndReasonName(static_cast<EndReason>(i))}});
  }
}

ConnectionTable::~ConnectionTable() = default;

size_t ConnectionTable::size() const {
  absl::MutexLock lock(&mu_);
  return connections_.size();
}

bool ConnectionTable::TakeBegin(Share* share, int64_t now_ns) const {
  const double passed_s = static_cast<double>(now_ns - share->begun_ns) * 1e-9;
  share->begun = std::max(0.0, share->begun - passed_s * limits_.begins_per_second);
  share->begun_ns = now_ns;
  if (share->begun + 1 > limits_.begins_burst) return false;
  share->begun += 1;
  return true;
}

bool ConnectionTable::Add(int descriptor, const sockaddr* peer, bool exempt) {
  if (descriptor >= kDescriptorsMax) {
    CountRefused(EndReason::kDescriptors);
    return false;
  }
  const int64_t now_ns = clock_->NowNs();
  PeerName name = NameOf(peer);
  Http2Limits http2 = limits_.http2;
  absl::MutexLock lock(&mu_);
  Share& share = of_address_[name.address];
  if (!exempt && !TakeBegin(&share, now_ns)) {
    CountRefused(EndReason::kPeerRate);
    HOTBED_LOG_EVERY_S(Warning, 10)
        << "connection of " << name.address << " refused: it begins more than "
        << limits_.begins_per_second << " per second";
    return false;
  }
  if (share.flooded_ns != 0 && now_ns - share.flooded_ns <= kFloodedNs) {
    http2.control_frames_burst =
        std::min(http2.control_frames_burst,
                 std::max(http2.control_frames_burst * share.burst_share, kFloodedBurstMin));
  }
  auto connection = std::make_unique<Connection>(shared_from_this(), http2);
  connection->descriptor = descriptor;
  connection->peer = std::move(name);
  connection->accepted_ns = now_ns;
  connection->received_ns.store(now_ns, std::memory_order_relaxed);
  const std::string& address = connection->peer.address;
  const uint32_t of_address = share.open;
  const bool peer_full = of_address >= limits_.connections_per_peer_max;
  if (!exempt && ((peer_full && !MakeRoom(address, &share, now_ns)) ||
                  (all_.open >= limits_.connections_max && !MakeRoom("", &all_, now_ns)))) {
    CountRefused(peer_full ? EndReason::kPeerLimit : EndReason::kProcessLimit);
    HOTBED_LOG_EVERY_S(Warning, 10)
        << "connection of " << connection->peer.address << " refused: " << of_address
        << " of its address are open, the limit is " << limits_.connections_per_peer_max
        << " (--connections-per-peer-max); " << all_.open << " altogether, the limit is "
        << limits_.connections_max << " (--connections-max)";
    return false;
  }
  accepted_.Add(1);
  ++share.open;
  ++all_.open;
  of_descriptor[descriptor].store(connection.get(), std::memory_order_release);
  connections_[descriptor] = std::move(connection);
  return true;
}

void ConnectionTable::EndLocked(Connection* connection, EndReason reason) {
  if (connection->ended.exchange(true)) return;
  ended_[static_cast<int>(reason)]->Add(1);
  if (reason == EndReason::kControlFrames) {
    Share& share = of_address_[connection->peer.address];
    if (share.flooded_ns == 0) share.flooded_ns = clock_->NowNs();
    share.burst_share *= kFloodedBurstShare;
  }
  CountGone(*connection);
  unfinished_bytes_.fetch_sub(connection->counted.exchange(0), std::memory_order_relaxed);
  HOTBED_LOG_EVERY_S(Warning, 10) << "connection of " << connection->peer.grpc
                                  << " ended: " << EndReasonName(reason);
  // gRPC finds the end of the stream, and closes the descriptor.
  shutdown(connection->descriptor, SHUT_RDWR);
}

void ConnectionTable::CountGone(const Connection& connection) {
  --all_.open;
  --of_address_.find(connection.peer.address)->second.open;  // Tick() erases it
}

bool ConnectionTable::MakeRoom(const std::string& address, Share* share, int64_t now_ns) {
  if (now_ns < share->none_idle_until_ns) return false;
  Connection* idle = nullptr;
  int64_t since_ns = now_ns - limits_.idle_ms * kMilliNs;
  for (const auto& [descriptor, connection] : connections_) {
    const int64_t received_ns = connection->received_ns.load(std::memory_order_relaxed);
    if (received_ns > since_ns || connection->ended.load(std::memory_order_relaxed)) continue;
    if (!address.empty() && connection->peer.address != address) continue;
    idle = connection.get();
    since_ns = received_ns;
  }
  if (idle == nullptr) {
    share->none_idle_until_ns = now_ns + kLookAgainNs;
    return false;
  }
  EndLocked(idle, EndReason::kMadeRoom);
  return true;
}

void ConnectionTable::End(const std::string& grpc_peer, EndReason reason) {
  absl::MutexLock lock(&mu_);
  for (const auto& [descriptor, connection] : connections_) {
    if (connection->peer.grpc == grpc_peer) return EndLocked(connection.get(), reason);
  }
}

void ConnectionTable::EndAll(EndReason reason) {
  absl::MutexLock lock(&mu_);
  for (const auto& [descriptor, connection] : connections_) EndLocked(connection.get(), reason);
}

void ConnectionTable::Tick() {
  const int64_t now_ns = clock_->NowNs();
  absl::MutexLock lock(&mu_);
  absl::erase_if(of_address_, [this, now_ns](auto& entry) {
    Share& share = entry.second;
    if (share.flooded_ns != 0 && now_ns - share.flooded_ns > kFloodedNs) {
      share.flooded_ns = 0;
      share.burst_share = 1;
    }
    const double since_s = static_cast<double>(now_ns - share.begun_ns) * 1e-9;
    return share.open == 0 && share.flooded_ns == 0 &&
           since_s * limits_.begins_per_second >= share.begun;
  });
  for (const auto& [descriptor, connection] : connections_) {
    const int64_t since_ns = connection->unfinished_since_ns.load(std::memory_order_relaxed);
    if (since_ns != 0 && now_ns - since_ns > limits_.message_timeout_ms * kMilliNs) {
      EndLocked(connection.get(), EndReason::kMessageTimeout);
    } else if (!connection->greeted.load(std::memory_order_relaxed) &&
               now_ns - connection->accepted_ns > limits_.greeting_timeout_ms * kMilliNs) {
      EndLocked(connection.get(), EndReason::kNoGreeting);
    }
  }
}

// A message that is held back comes slowest. Where all have begun a moment ago, the newest goes:
// the others are nearer to their end.
void ConnectionTable::EndSlowestUnfinished(int64_t now_ns) {
  constexpr int64_t kJudgedNs = 1'000'000'000;
  absl::MutexLock lock(&mu_);
  Connection* slowest = nullptr;
  Connection* newest = nullptr;
  double slowest_rate = 0;
  int64_t newest_ns = 0;
  for (const auto& [descriptor, connection] : connections_) {
    const int64_t since_ns = connection->unfinished_since_ns.load(std::memory_order_relaxed);
    if (since_ns == 0 || connection->ended.load(std::memory_order_relaxed)) continue;
    const int64_t age_ns = now_ns - since_ns;
    if (age_ns < kJudgedNs) {
      if (newest == nullptr || since_ns > newest_ns) {
        newest = connection.get();
        newest_ns = since_ns;
      }
      continue;
    }
    const double rate = static_cast<double>(connection->counted.load()) / age_ns;
    if (slowest == nullptr || rate < slowest_rate) {
      slowest = connection.get();
      slowest_rate = rate;
    }
  }
  if (slowest == nullptr) slowest = newest;
  if (slowest != nullptr) EndLocked(slowest, EndReason::kUnfinishedMessages);
}

bool ConnectionTable::Take(Connection* connection, const iovec* pieces, size_t count,
                           size_t bytes) {
  if (connection->ended.load(std::memory_order_relaxed)) return false;
  const int64_t now_ns = clock_->NowNs();
  connection->received_ns.store(now_ns, std::memory_order_relaxed);
  if (limits_.encrypted) {  // gRPC itself ends who does not finish the handshake
    connection->greeted.store(true, std::memory_order_relaxed);
    return true;
  }
  Http2Meter& meter = connection->meter;
  auto verdict = Http2Meter::Verdict::kGoOn;
  for (size_t i = 0; i < count && bytes > 0 && verdict == Http2Meter::Verdict::kGoOn; ++i) {
    const size_t n = std::min(bytes, pieces[i].iov_len);
    verdict = meter.Take({static_cast<const uint8_t*>(pieces[i].iov_base), n}, now_ns);
    bytes -= n;
  }
  if (verdict != Http2Meter::Verdict::kGoOn) {
    absl::MutexLock lock(&mu_);
    EndLocked(connection, ReasonOf(verdict));
    return false;
  }
  if (meter.greeted() && !connection->greeted.load(std::memory_order_relaxed)) {
    connection->greeted.store(true, std::memory_order_relaxed);
  }
  const uint64_t now_bytes = meter.unfinished_bytes();
  if (now_bytes == connection->counted.load(std::memory_order_relaxed)) return true;
  connection->unfinished_since_ns.store(meter.unfinished_since_ns(), std::memory_order_relaxed);
  // The difference may be below zero; unsigned arithmetic does not mind.
  const uint64_t more = now_bytes - connection->counted.exchange(now_bytes);
  const uint64_t all = unfinished_bytes_.fetch_add(more, std::memory_order_relaxed) + more;
  // Below zero for a moment where another thread ends this connection between the two steps.
  if (static_cast<int64_t>(all) > static_cast<int64_t>(limits_.unfinished_bytes_max)) {
    EndSlowestUnfinished(now_ns);
  }
  return true;
}

bool ConnectionTable::OnReceived(int descriptor, const iovec* pieces, size_t count, size_t bytes) {
  if (descriptor < 0 || descriptor >= kDescriptorsMax) return true;
  auto* const connection =
      static_cast<Connection*>(of_descriptor[descriptor].load(std::memory_order_acquire));
  return connection == nullptr || connection->table->Take(connection, pieces, count, bytes);
}

void ConnectionTable::OnClose(int descriptor) {
  if (descriptor < 0 || descriptor >= kDescriptorsMax) return;
  std::atomic<void*>& place = of_descriptor[descriptor];
  if (place.load(std::memory_order_relaxed) == nullptr) return;
  auto* const closed = static_cast<Connection*>(place.exchange(nullptr));
  if (closed == nullptr) return;
  const std::shared_ptr<ConnectionTable> table = closed->table;
  table->unfinished_bytes_.fetch_sub(closed->counted.exchange(0), std::memory_order_relaxed);
  std::unique_ptr<Connection> connection;  // deleted without the lock
  absl::MutexLock lock(&table->mu_);
  const auto found = table->connections_.find(descriptor);
  connection = std::move(found->second);
  table->connections_.erase(found);
  if (!connection->ended.load(std::memory_order_relaxed)) table->CountGone(*connection);
}

}  // namespace hotbed

// gRPC calls the C library's recvmsg() and close(). The dynamic linker finds these functions first.

namespace {

// The function that this one stands before.
template <typename Function>
Function Next(std::atomic<Function>* next, const char* name) {
  Function found = next->load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    next->store(found, std::memory_order_relaxed);
  }
  return found;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int descriptor, msghdr* message,
                                                                  int flags) {
  static std::atomic<ssize_t (*)(int, msghdr*, int)> next{nullptr};
  const ssize_t bytes = Next(&next, "recvmsg")(descriptor, message, flags);
  if (bytes <= 0 || hotbed::ConnectionTable::OnReceived(descriptor, message->msg_iov,
                                                        message->msg_iovlen, bytes)) {
    return bytes;
  }
  errno = ECONNRESET;
  return -1;
}

extern "C" __attribute__((visibility("default"))) int close(int descriptor) {
  static std::atomic<int (*)(int)> next{nullptr};
  hotbed::ConnectionTable::OnClose(descriptor);
  return Next(&next, "close")(descriptor);
}
