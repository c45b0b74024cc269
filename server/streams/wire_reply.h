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
#include "server/shard/requests.h"
#include "server/streams/data_plane.h"

namespace hotbed {

// Segments of a message that were refused before they reached the shard host: (place in the
// message, why), ascending.
using SegmentRefusals = std::vector<std::pair<uint32_t, SegmentResult>>;

// Why a message was refused as a whole; kOk: it was not.
struct MessageRefusal {
  SegmentCode code = SegmentCode::kOk;
  std::string detail;
  bool refused() const { return code != SegmentCode::kOk; }
};

// Counts a stream that has just been opened; not OK when there are too many or the server is
// stopping.
grpc::Status AdmitStream(DataPlane* plane);
// How a message that cannot be parsed ends its stream. Counts it.
grpc::Status StreamError(const absl::Status& parsed);
// Checks the Hello of a stream's first message (null: there was none) against this server: another
// cluster or wire version ends the stream.
grpc::Status CheckHello(const v1::Hello* hello, const DataPlane& plane);
// The server's own.
void FillHello(const DataPlane& plane, v1::Hello* hello);

// `result` of the segment of `shard`; WRONG_EPOCH carries the newest record that the host knows.
// Counts refusals.
void FillSegment(const SegmentResult& result, ShardId shard, const DataPlane& plane,
                 v1::SegmentReply* reply);

// Sets code and detail of the whole, and the same code with a retry delay where one helps on
// `segments` segments.
void FillRefusal(const MessageRefusal& refusal, uint32_t segments, const DataPlane& plane,
                 v1::ReplyHeader* reply);

// A reply that is a header and nothing else (a push's, or a refusal).
grpc::ByteBuffer EncodeHeaderOnly(const v1::ReplyHeader& header);

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_WIRE_REPLY_H_
