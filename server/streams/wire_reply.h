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
#include "common/ids.h"
#include "proto/data.pb.h"
#include "proto/wire.h"
#include "server/shard/request/segment_result.h"
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

// Writes the header of a reply: Add for each segment in order, then Finish; or RefuseAll.
class ReplyWriter {
 public:
  // `header` is cleared. `hello` may be null.
  ReplyWriter(const DataPlane& plane, uint64_t request, uint32_t segments, const v1::Hello* hello,
              v1::ReplyHeader* header);

  // The result of the next segment, which asked for `epoch` of `shard` with the sequence `seq` (0
  // for a pull). WRONG_EPOCH carries the newest record that the host knows. Counts refusals.
  void Add(const SegmentResult& result, ShardId shard, Epoch epoch, uint64_t seq) {
    header_->mutable_lsns()->AddAlreadyReserved(result.lsn);
    const bool usual =
        result.code == SegmentCode::kOk && result.epoch == epoch && result.last_seq == seq;
    if (!usual) AddException(result, shard);
  }
  void Finish();
  // The message as a whole is refused, with a retry delay where a retry helps.
  void RefuseAll(const Refusal& refusal);

 private:
  void AddException(const SegmentResult& result, ShardId shard);

  const DataPlane& plane_;
  v1::ReplyHeader* const header_;
};

// Encodes a reply that has only a header: of a push, or a refusal.
grpc::ByteBuffer EncodeHeaderOnly(const v1::ReplyHeader& header);

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_WIRE_REPLY_H_
