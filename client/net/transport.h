// The seam between the client and the wire: carries one request to one server and brings its reply
// or the news of its loss.
//
// The gRPC implementation keeps one stream per server and lane; an in-process implementation can
// hand requests to a shard host. Messages are those of proto/data.proto. Thread-safe.
#ifndef HOTBED_CLIENT_NET_TRANSPORT_H_
#define HOTBED_CLIENT_NET_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/net/buffer_pool.h"
#include "common/clock.h"
#include "hotbed/client.h"
#include "hotbed/wait_driver.h"
#include "proto/wire.h"

namespace hotbed {

enum class Lane { kPull, kPush, kLookup };

// A message in parts, so that bulk bytes are never copied after they were gathered.
struct OutgoingMessage {
  // A serialized PullHeader or PushHeader without `hello`, `request` and `deadline_ms`, which the
  // transport adds.
  std::string header;
  // The content of the bulk field `field`: its pieces, one after another.
  struct Bulk {
    uint32_t field = 0;
    absl::InlinedVector<BytesRef, 1> pieces;

    // Adds the `size` bytes at `data` inside `owner`; bytes that follow the last piece extend it.
    void Append(const BufferRef& owner, const char* data, size_t size);
  };
  absl::InlinedVector<Bulk, 2> bulk;
  uint64_t reply_bytes = 0;  // about the size of the answer, for the stream's window
  uint64_t row_bytes = 0;    // of the answer's rows, if every segment is served
  uint32_t segments = 0;     // in the header
  // Time left for a pull; 0: unlimited. Joined requests travel with the latest of their deadlines:
  // each caller ends its own call, and the server drops only work that all of them have given up.
  uint32_t deadline_ms = 0;
  // Queued requests of the same lane, server and key may travel as one message: their headers agree
  // in all but the segments. 0: never.
  uint64_t join_key = 0;

  // Header and bulk bytes.
  uint64_t Bytes() const;
  // Adds the segments and bulk bytes of `other`, which has the same lane and join_key.
  void Join(OutgoingMessage other);
};

// A reply, valid only during PendingRequest::Done. Where requests were joined to one message, each
// of them gets the whole reply and its own range of segments.
struct ServerReply {
  Fragments fragments;
  const PullReplyView* view = nullptr;  // for both lanes: a PushReply has nothing but a header
  uint32_t segment_first = 0;           // of this request, in the header
  uint32_t segment_count = 0;
  uint64_t row_bytes_before = 0;  // of the earlier segments, in view->rows
  // The columns and exceptions suit the segments, and the rows have the bytes that were asked for
  // or that the header names.
  bool whole = false;
};

class PendingRequest {
 public:
  virtual ~PendingRequest() = default;
  // Called exactly once, from a thread of the transport, never from inside Send. `transport` is OK
  // and there is a reply; or it says why there is none, and the server may or may not have acted on
  // the request.
  virtual void Done(const absl::Status& transport, const ServerReply* reply) = 0;
  // Called instead of Done(why, nullptr) where nothing of the request was written: no server has
  // acted on it.
  virtual void NotSent(const absl::Status& why) { Done(why, nullptr); }
  // True when nobody waits any more. A request that is still queued is then dropped (NotSent with
  // Cancelled).
  virtual bool Abandoned() const { return false; }
};

class Transport {
 public:
  // Ends every stream; open requests are Done with Cancelled before it returns.
  virtual ~Transport() = default;
  // Requests of one lane to one address are written in the order of the Send calls. Does not block:
  // requests beyond the stream's window wait in a queue, which the callers bound
  // (pulls_in_flight_max, pushes_in_flight_max and the limits of their bytes).
  virtual void Send(const std::string& address, Lane lane, OutgoingMessage message,
                    std::shared_ptr<PendingRequest> request) = 0;
  // Stops waiting for the server at the address: requests in flight there are Done with an error,
  // as if their streams had broken. Later requests connect again.
  virtual void Abandon(const std::string& address) {}
  // Goes into the hello of push streams that are opened from now on.
  virtual void SetSession(uint64_t session, uint64_t incarnation) = 0;
  virtual void SetClusterId(const std::string& cluster_id) = 0;
  // The smallest `message_bytes_max` in any server's hello so far; 0: none arrived.
  virtual uint64_t MessageBytesMax() const = 0;
  // Bytes, messages and reconnects alone.
  virtual ClientStats Stats() const = 0;
  // For the promises of the senders. Null: threads that wait for them sleep.
  virtual std::shared_ptr<WaitDriver> driver() { return nullptr; }

  // Sleeps until `condition`, which `mu` guards and answers fulfil, holds. False if `deadline_ns`
  // of `clock` passes first. The driver is told, so that another thread reads the answers.
  bool AwaitAnswers(const Clock* clock, absl::Mutex* mu, const absl::Condition& condition,
                    int64_t deadline_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_TRANSPORT_H_
