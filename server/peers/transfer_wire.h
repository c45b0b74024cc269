// Messages between replicas in their wire form (proto/replica.proto). Bodies are sent by reference,
// and received into memory that counts against a TransferBudget until it is released.
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
#include "server/shard/replica/replica_message.h"

namespace hotbed {

// The bytes of a message's records and body.
uint64_t BodyBytes(const ReplicaMessage& message);
// The approximate size of a message without its body, on the wire and in a queue.
inline constexpr uint64_t kItemBytes = 128;

// Encodes `messages` as one TransferMessage that refers to their bodies; `header` may carry a
// hello. A body below kCopiedBodyBytes is copied, since a reference costs more.
inline constexpr uint64_t kCopiedBodyBytes = 4096;
grpc::ByteBuffer EncodeTransfer(absl::Span<const ReplicaMessage> messages,
                                v1::TransferHeader* header);

// Appends the messages of `view` that are for `self`, in order; each body is copied out of the
// fragments once, aligned to 8 bytes. InvalidArgument: inconsistent sizes, an unknown kind or more
// records than bytes. ResourceExhausted: `budget` is used up. The messages in front of an error are
// in `messages`.
absl::Status DecodeTransfer(Fragments fragments, const TransferView& view, const Member& self,
                            TransferBudget* budget, std::vector<ReplicaMessage>* messages);

inline Member FromWire(const v1::Member& member) { return {member.server(), member.incarnation()}; }
inline void ToWire(const Member& member, v1::Member* to) {
  to->set_server(member.server);
  to->set_incarnation(member.incarnation);
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_PEERS_TRANSFER_WIRE_H_
