// The connections of one port: how many, of whom, and what each has sent of messages that are not
// complete. A program that links it stands before two functions of the C library, since gRPC has no
// place of its own where bytes can be seen before it keeps them: recvmsg, by which gRPC reads, and
// close, so that a descriptor is known as long as it is open and no longer. Connections that were
// not added are not looked at.
//
// Thread-safe, and shared with its connections: it lives until the last of them is closed.
#ifndef HOTBED_PORTS_CONNECTION_TABLE_H_
#define HOTBED_PORTS_CONNECTION_TABLE_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/rare_counter.h"
#include "ports/http2_meter.h"

namespace hotbed {

struct ConnectionLimits {
  // TLS: what arrives cannot be looked into, so the limits of `http2`, of messages that are not
  // complete, and of their time do not hold. gRPC's own quota does.
  bool encrypted = false;
  uint32_t connections_max = 4096;
  uint32_t connections_per_peer_max = 2048;  // from one address
  // That one address may begin: a connection costs us ten times what a refusal does.
  double begins_per_second = 200;  // on average
  double begins_burst = 1000;      // at once
  Http2Limits http2;               // of one connection
  // Bytes of messages that are not complete, all connections together. Beyond it the connection
  // whose message began first is closed.
  uint64_t unfinished_bytes_max = 64ull << 20;
  int64_t message_timeout_ms = 60'000;   // from a message's first byte to its last
  int64_t greeting_timeout_ms = 10'000;  // from accept to the HTTP/2 preface
  // A connection that has sent nothing for so long makes room for a new one when there is no other.
  // Clients with a call open ping every second.
  int64_t idle_ms = 3'000;
};

// Who was ended for control frames comes back and sends the next burst. For this long, new
// connections of its address get a burst that is so many times smaller after each such end, down to
// what a client needs that means well.
inline constexpr int64_t kFloodedNs = 10'000'000'000;
inline constexpr double kFloodedBurstShare = 0.1;
inline constexpr double kFloodedBurstMin = 20;

// Why a connection was not taken, or was ended by us. Labels of metrics.
enum class EndReason {
  kProcessLimit,  // refused
  kPeerLimit,     // refused
  kPeerRate,      // refused: its address begins too many
  kDescriptors,   // refused: none was left
  kMadeRoom,
  kNotHttp2,
  kNoGreeting,
  kMessageTooLarge,
  kHeadersTooLarge,
  kControlFrames,
  kUnfinishedMessages,
  kMessageTimeout,
  kUnreadAnswers,
  kAccessChanged,
};
inline constexpr int kEndReasons = static_cast<int>(EndReason::kAccessChanged) + 1;
const char* EndReasonName(EndReason reason);

struct PeerName {
  std::string address;  // "10.0.0.1"
  std::string grpc;     // as gRPC writes the peer: "ipv4:10.0.0.1:4711"
};

class ConnectionTable : public std::enable_shared_from_this<ConnectionTable> {
 public:
  // `port` is the metrics' label: "data". `clock` outlives all connections.
  ConnectionTable(std::string port, const ConnectionLimits& limits, const Clock* clock);
  ~ConnectionTable();

  // Before the connection is given to gRPC. False: there is no room, even after an idle one was
  // ended; the caller closes the descriptor. `exempt`: our own probe.
  bool Add(int descriptor, const sockaddr* peer, bool exempt);
  // Counts a connection that was refused for a reason of the caller.
  void CountRefused(EndReason reason) { ended_[static_cast<int>(reason)]->Add(1); }
  // Ends the connection of a gRPC peer ("ipv4:10.0.0.1:4711"), if it is still open.
  void End(const std::string& grpc_peer, EndReason reason);
  void EndAll(EndReason reason);
  // Ends connections whose time is over. Every second or so.
  void Tick();

  size_t size() const;
  uint64_t unfinished_bytes() const { return unfinished_bytes_.load(std::memory_order_relaxed); }

  // For recvmsg and close. False: the connection is to break.
  static bool OnReceived(int descriptor, const iovec* pieces, size_t count, size_t bytes);
  static void OnClose(int descriptor);

 private:
  struct Connection;
  // Counts all connections, or those of one address.
  struct Share {
    uint32_t open = 0;               // those that were not ended
    int64_t none_idle_until_ns = 0;  // when it is worth looking again
    int64_t flooded_ns = 0;          // the first end for control frames lately; 0: long ago
    double burst_share = 1;          // of new connections, while it is not long ago
    double begun = 0;      // connections, less what the rate allows since; below the burst
    int64_t begun_ns = 0;  // when `begun` was right
  };

  // Takes a connection of the address out of its rate. False: it has begun too many.
  bool TakeBegin(Share* share, int64_t now_ns) const;
  void EndLocked(Connection* connection, EndReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountGone(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the connection, of `address` unless empty, that has sent nothing for longest.
  bool MakeRoom(const std::string& address, Share* share, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndSlowestUnfinished(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mu_);
  bool Take(Connection* connection, const iovec* pieces, size_t count, size_t bytes);

  const ConnectionLimits limits_;
  const Clock* const clock_;
  Counter accepted_;
  std::array<std::unique_ptr<RareCounter>, kEndReasons> ended_;
  std::atomic<uint64_t> unfinished_bytes_{0};
  mutable absl::Mutex mu_;
  absl::flat_hash_map<int, std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Share> of_address_ ABSL_GUARDED_BY(mu_);
  Share all_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_PORTS_CONNECTION_TABLE_H_
