// The requests of one stream: those that wait to be written, and those written that wait for their
// answers. Decides which requests travel as one message and when the next message may be written.
//
// A message costs gRPC and the server about as much as some hundred rows of 64 floats. Requests
// that wait are therefore joined to one message where their keys allow it, up to `joined_bytes_max`
// and the server's own limit; before the server's hello arrives, nothing is joined. A request waits
//   - while the window is full (messages and bytes without an answer), and
//   - while kBusyMessages messages are unanswered, because the server is busy until it answers one
//     of them. Two slow messages would hold up everything behind them, so the caller ends this
//     second wait after a time of its own (BeginHold, EndHold).
//
// Bytes are those of the larger direction of a request. Thread-compatible.
#ifndef HOTBED_CLIENT_NET_STREAM_BACKLOG_H_
#define HOTBED_CLIENT_NET_STREAM_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "client/net/transport.h"
#include "proto/data.pb.h"

namespace hotbed {

class StreamBacklog {
 public:
  // Window of a stream until the server's hello names another.
  static constexpr uint64_t kWindowMessages = 32;
  static constexpr uint64_t kWindowBytes = 32ull << 20;
  static constexpr uint64_t kJoinedBytesMax = 576ull << 10;
  static constexpr size_t kBusyMessages = 2;

  struct Joined {
    std::shared_ptr<PendingRequest> request;
    uint32_t segments = 0;
    uint64_t row_bytes = 0;  // of its answer, if every segment is served
  };
  // The requests of one message, in the order of their segments.
  using Requests = absl::InlinedVector<Joined, 4>;
  using RequestList = std::vector<std::shared_ptr<PendingRequest>>;
  enum class Next {
    kNothing,  // nothing waits, or the window is full
    kHold,     // the next request had better wait for company
    kWrite,
  };

  // `joined_bytes_max` 0: every request travels alone.
  explicit StreamBacklog(uint64_t joined_bytes_max) : joined_bytes_max_(joined_bytes_max) {}

  // Returns the bytes that the request itself has on the wire.
  uint64_t Add(OutgoingMessage message, std::shared_ptr<PendingRequest> request);
  // Moves requests that nobody waits for from the head of the queue to `dropped`.
  void DropAbandoned(RequestList* dropped);
  Next Decide() const;
  // Moves the next request, and those that may join it, into `message` and counts it as in flight.
  // Returns the number of the message, which counts from 1. Decide() was not kNothing.
  uint64_t Take(OutgoingMessage* message);

  // A timer for the message that Decide() holds back begins.
  void BeginHold() { held_number_ = next_number_; }
  // The timer ended. True: that message still waits, and Decide() no longer holds it back.
  bool EndHold();

  // The requests that an answer to message `number` is for; empty: no such message is in flight.
  Requests Answered(uint64_t number);
  // Takes over the limits of the server.
  void TakeHello(const v1::Hello& hello);
  // The stream ended: written requests go to `lost`, the oldest first, the others to `unsent`.
  void TakeAll(RequestList* lost, RequestList* unsent);

  bool empty() const { return waiting_.empty(); }  // nothing waits to be written
  bool idle() const { return waiting_.empty() && in_flight_.empty(); }

 private:
  struct Queued {
    OutgoingMessage message;
    std::shared_ptr<PendingRequest> request;
    uint64_t bytes = 0;
  };
  struct InFlight {
    Requests requests;
    uint64_t bytes = 0;
    uint64_t segments = 0;
  };

  void PopWaiting();
  // True if the first waiting request may join the message of `open`.
  bool MayJoin(const InFlight& open, uint64_t key) const;

  const uint64_t joined_bytes_max_;
  std::deque<Queued> waiting_;
  uint64_t bytes_waiting_ = 0;
  absl::flat_hash_map<uint64_t, InFlight> in_flight_;  // by number
  uint64_t bytes_in_flight_ = 0;
  uint64_t next_number_ = 1;
  uint64_t window_messages_ = kWindowMessages;
  uint64_t window_bytes_ = kWindowBytes;
  uint64_t joined_bytes_now_ = 0;  // 0 until the server's limit is known
  uint64_t held_number_ = 0;
  bool overdue_ = false;  // the next message is no longer held back
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_STREAM_BACKLOG_H_
