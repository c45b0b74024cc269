// The seam between the client and the wire: carries one request to one server and brings its reply
// or its loss.
//
// The gRPC implementation keeps one stream a server and lane; an in-process one can hand requests
// to a shard host. Messages are those of proto/data.proto. Thread-safe.
#ifndef HOTBED_CLIENT_NET_TRANSPORT_H_
#define HOTBED_CLIENT_NET_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "client/net/buffer_pool.h"
#include "hotbed/wait_driver.h"
#include "proto/wire.h"

namespace hotbed {

enum class Lane { kPull, kPush, kLookup };

// A message in parts, so that bulk bytes are never copied after they were gathered.
struct OutgoingMessage {
  // A PullHeader or PushHeader without `hello`, `request` and `deadline_ms`: the transport adds
  // them.
  std::string header;
  // The bulk field `field`: its pieces stand one after another.
  struct Bulk {
    uint32_t field = 0;
    absl::InlinedVector<BytesRef, 1> pieces;
  };
  absl::InlinedVector<Bulk, 2> bulk;
  uint64_t reply_bytes = 0;  // about what the answer will weigh, for the window
  uint32_t segments = 0;     // in the header
  // Of a pull, time left; 0: none. Joined requests travel with the latest of theirs: each caller
  // ends its own call, and the server need not work for what all of them have given up.
  uint32_t deadline_ms = 0;
  // Requests of one lane, server and key that are queued together may travel as one message: their
  // headers agree in all but the segments. 0: never.
  uint64_t join_key = 0;
};

// A reply, valid during PendingRequest::Done only. Where requests were joined to one message, each
// gets the whole reply and its own place in it.
struct Reply {
  Fragments fragments;
  const PullReplyView* view = nullptr;  // of either kind: a PushReply has a header only
  uint32_t segment_first = 0;           // of this request, in the header
  uint32_t segment_count = 0;
  uint64_t row_bytes_before = 0;  // of the segments before, in view->rows
};

class PendingRequest {
 public:
  virtual ~PendingRequest() = default;
  // Called exactly once, from a thread of the transport, never from inside Send. `transport` is OK
  // with a reply, or says why there is none: then the server may or may not have acted on the
  // request.
  virtual void Done(const absl::Status& transport, const Reply* reply) = 0;
  // Called in place of Done(why, nullptr) where nothing of the request was written: no server has
  // acted on it.
  virtual void NotSent(const absl::Status& why) { Done(why, nullptr); }
  // True when nobody waits any more: a request still queued is then dropped (NotSent, Cancelled).
  virtual bool Abandoned() const { return false; }
};

struct TransportStats {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t messages = 0;
  uint64_t reconnects = 0;
};

class Transport {
 public:
  // Ends every stream; open requests are Done with Cancelled before it returns.
  virtual ~Transport() = default;
  // Requests of one lane to one address are written in the order of the Send calls. Does not block:
  // what is beyond the stream's window waits in a queue, which the callers bound
  // (pulls_in_flight_max, pushes_in_flight_max and their bytes).
  virtual void Send(const std::string& address, Lane lane, OutgoingMessage message,
                    std::shared_ptr<PendingRequest> request) = 0;
  // Whoever listens at the address is not waited for any longer: what is under way there is Done
  // with an error, as if its streams had broken. Later requests connect anew.
  virtual void Abandon(const std::string& address) {}
  // Goes into the hello of push streams opened from now on.
  virtual void SetSession(uint64_t session, uint64_t incarnation) = 0;
  virtual void SetClusterId(const std::string& cluster_id) = 0;
  // The least `message_bytes_max` in any server's hello so far; 0: none was heard.
  virtual uint64_t MessageBytesMax() const = 0;
  virtual TransportStats Stats() const = 0;
  // For the promises of those who send; null: waiting threads sleep.
  virtual std::shared_ptr<WaitDriver> driver() { return nullptr; }
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_TRANSPORT_H_
