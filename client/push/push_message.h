// Builds the message that carries parts of pushes to one server. Thread-safe.
#ifndef HOTBED_CLIENT_PUSH_PUSH_MESSAGE_H_
#define HOTBED_CLIENT_PUSH_PUSH_MESSAGE_H_

#include "absl/types/span.h"
#include "client/map/control_plane.h"
#include "client/net/transport.h"
#include "client/push/push_call.h"
#include "client/push/push_chain.h"
#include "common/ids.h"

namespace hotbed {

struct ShardChain;

// A part in flight, as it was sent.
struct SentPart {
  ShardChain* chain = nullptr;
  PushPart* part = nullptr;
  PushChain::Stamp stamp;
  Epoch epoch = 0;
  uint32_t shard = 0;  // that has the part's lane
};

// All parts are of the session `identity` and carry gradients of `gradient_type`. The message
// refers to the parts' buffers and may travel together with others of the session.
OutgoingMessage BuildPushMessage(const SessionIdentity& identity, RowType gradient_type,
                                 absl::Span<const SentPart> parts);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_MESSAGE_H_
