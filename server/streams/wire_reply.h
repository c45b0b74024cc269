// Replies of pulls and pushes in their wire form: segment results, refusals of a whole message,
// Hello.
#ifndef HOTBED_SERVER_STREAMS_WIRE_REPLY_H_
#define HOTBED_SERVER_STREAMS_WIRE_REPLY_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/data.pb.h"
#include "proto/wire.h"
#include "server/shard/segment_result.h"
#include "server/streams/data_plane.h"

namespace hotbed {

// Segments of a message that were refused before they reached the shard host: (position in the
// message, result), ascending.
using SegmentRefusals = std::vector<std::pair<uint32_t, SegmentResult>>;

// Counts a stream that was just opened. Not OK: there are too many, or the server is stopping.
grpc::Status AdmitStream(DataPlane* plane);
// The status with which a message that cannot be parsed ends its stream; counts it.
grpc::Status StreamError(const absl::Status& parsed);
// Checks the Hello of a stream's first message (null: it had none) against this server. Another
// cluster or wire version ends the stream.
grpc::Status CheckHello(const v1::Hello* hello, const DataPlane& plane);
// Fills the server's own hello.
void FillHello(const DataPlane& plane, v1::Hello* hello);

// Writes `result` of the segment of `shard`; WRONG_EPOCH carries the newest record that the host
// knows. Counts refusals.
void FillSegment(const SegmentResult& result, ShardId shard, const DataPlane& plane,
                 v1::SegmentReply* reply);

// Sets code and detail of the whole message, and its code on `segments` segments, with a retry
// delay where a retry helps.
void FillRefusal(const Refusal& refusal, uint32_t segments, const DataPlane& plane,
                 v1::ReplyHeader* reply);

// Encodes a reply that has only a header: of a push, or a refusal.
grpc::ByteBuffer EncodeHeaderOnly(const v1::ReplyHeader& header);

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_WIRE_REPLY_H_
