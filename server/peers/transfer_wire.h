// Messages between copies in their wire form (proto/replica.proto): bodies leave by reference and
// arrive in memory of their own, counted until nobody holds it.
#ifndef HOTBED_SERVER_PEERS_TRANSFER_WIRE_H_
#define HOTBED_SERVER_PEERS_TRANSFER_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/replica.pb.h"
#include "proto/wire.h"
#include "server/peers/transfer_budget.h"
#include "server/shard/replica_message.h"

namespace hotbed {

// Of the records or the body.
uint64_t BodyBytes(const ReplicaMessage& message);
// About what a message takes beside its body, on the wire and in a queue.
inline constexpr uint64_t kItemBytes = 128;

// One TransferMessage of all `messages`, whose bodies it refers to; `header` may carry a hello. A
// body below kCopiedBodyBytes is copied, since a reference costs more.
inline constexpr uint64_t kCopiedBodyBytes = 4096;
grpc::ByteBuffer EncodeTransfer(absl::Span<const ReplicaMessage> messages,
                                v1::TransferHeader* header);

// The messages of `view` that are for `self`, in order, each body copied out of the fragments once,
// aligned to 8 bytes. InvalidArgument: sizes that do not add up, an unknown kind, more records than
// bytes; ResourceExhausted: `budget` has no room. What was read before an error is in `messages`.
absl::Status DecodeTransfer(Fragments fragments, const TransferView& view, const Member& self,
                            TransferBudget* budget, std::vector<ReplicaMessage>* messages);

inline Member FromWire(const v1::Member& member) { return {member.server(), member.incarnation()}; }
inline void ToWire(const Member& member, v1::Member* to) {
  to->set_server(member.server);
  to->set_incarnation(member.incarnation);
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_TRANSFER_WIRE_H_
