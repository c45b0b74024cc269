#include "server/streams/wire_reply.h"

#include <grpcpp/support/slice.h>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "proto/segments.h"
#include "server/net/stream_metrics.h"

namespace hotbed {
namespace {

// Wire codes and row types have the values of the enums they stand for.
static_assert(static_cast<int>(SegmentCode::kOk) == v1::OK);
static_assert(static_cast<int>(SegmentCode::kWrongEpoch) == v1::WRONG_EPOCH);
static_assert(static_cast<int>(SegmentCode::kUnknownShard) == v1::UNKNOWN_SHARD);
static_assert(static_cast<int>(SegmentCode::kInvalidArgument) == v1::INVALID_ARGUMENT);
static_assert(static_cast<int>(SegmentCode::kOutOfRange) == v1::OUT_OF_RANGE);
static_assert(static_cast<int>(SegmentCode::kNanGradient) == v1::NAN_GRADIENT);
static_assert(static_cast<int>(SegmentCode::kUnknownSession) == v1::UNKNOWN_SESSION);
static_assert(static_cast<int>(SegmentCode::kFenced) == v1::FENCED);
static_assert(static_cast<int>(SegmentCode::kGap) == v1::GAP);
static_assert(static_cast<int>(SegmentCode::kResourceExhausted) == v1::RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(SegmentCode::kReadOnly) == v1::READ_ONLY);
static_assert(static_cast<int>(SegmentCode::kUnavailable) == v1::UNAVAILABLE);
static_assert(static_cast<int>(SegmentCode::kCorrupt) == v1::CORRUPT);
static_assert(static_cast<int>(SegmentCode::kDeadlineExceeded) == v1::DEADLINE_EXCEEDED);
static_assert(static_cast<int>(SegmentCode::kInternal) == v1::INTERNAL);
static_assert(static_cast<int>(SegmentCode::kStepOver) == v1::STEP_OVER);
static_assert(static_cast<int>(SegmentCode::kPermissionDenied) == v1::PERMISSION_DENIED);
static_assert(v1::Code_ARRAYSIZE == static_cast<int>(SegmentCode::kPermissionDenied) + 1);

v1::Code ToWire(SegmentCode code) { return static_cast<v1::Code>(code); }

static_assert(static_cast<int>(RowType::kFp32) == v1::ROW_FP32);
static_assert(static_cast<int>(RowType::kFp16) == v1::ROW_FP16);
static_assert(static_cast<int>(RowType::kBf16) == v1::ROW_BF16);
static_assert(static_cast<int>(RowType::kInt8) == v1::ROW_INT8);

bool HelpsToRetry(SegmentCode code) {
  return code == SegmentCode::kResourceExhausted || code == SegmentCode::kUnavailable ||
         code == SegmentCode::kReadOnly;
}

}  // namespace

grpc::Status AdmitStream(DataPlane* plane) {
  StreamMetrics::Get().streams_opened.Add(1);
  if (plane->streams.fetch_add(1) >= plane->limits.streams_max) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        absl::StrCat("this server has ", plane->limits.streams_max,
                                     " streams open, its limit: close some or use other servers"));
  }
  if (plane->draining.load(std::memory_order_relaxed)) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this server is stopping");
  }
  return grpc::Status::OK;
}

grpc::Status StreamError(const absl::Status& parsed) {
  if (parsed.ok()) return grpc::Status::OK;
  StreamMetrics::Get().streams_failed.Add(1);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, std::string(parsed.message()));
}

grpc::Status CheckHello(const v1::Hello* hello, const DataPlane& plane) {
  if (hello == nullptr) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        absl::StrCat("the first message of a stream carries no hello: set "
                                     "header.hello with wire_version ",
                                     kWireVersion));
  }
  if (hello->wire_version() != kWireVersion) {
    return grpc::Status(
        grpc::StatusCode::FAILED_PRECONDITION,
        absl::StrCat("hello.wire_version is ", hello->wire_version(), ", this server speaks ",
                     kWireVersion, ": use a client of the same wire version"));
  }
  if (hello->cluster_id().empty()) return grpc::Status::OK;
  const std::string ours = plane.host->identity().cluster_id;
  if (ours.empty() || ours == hello->cluster_id()) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                      absl::StrCat("hello.cluster_id is '", hello->cluster_id(),
                                   "', this server belongs to cluster '", ours,
                                   "': connect to the coordinator of the cluster that is meant"));
}

void FillHello(const DataPlane& plane, v1::Hello* hello) {
  hello->set_cluster_id(plane.host->identity().cluster_id);
  hello->set_wire_version(kWireVersion);
  hello->set_feature_level(kFeatureLevel);
  hello->set_message_bytes_max(plane.limits.message_bytes_max);
  hello->set_messages_in_flight_max(plane.limits.messages_in_flight_max);
  hello->set_bytes_in_flight_max(plane.limits.stream_bytes_in_flight_max);
}

ReplyWriter::ReplyWriter(const DataPlane& plane, uint64_t request, uint32_t segments,
                         const v1::Hello* hello, v1::ReplyHeader* header)
    : plane_(plane), header_(header) {
  header->Clear();
  header->set_request(request);
  header->set_segments(segments);
  if (hello != nullptr) *header->mutable_hello() = *hello;
  header->mutable_lsns()->Reserve(static_cast<int>(segments));
}

void ReplyWriter::AddException(const SegmentResult& result, ShardId shard) {
  v1::SegmentReply* const reply = header_->add_exceptions();
  reply->set_segment(static_cast<uint32_t>(header_->lsns_size() - 1));
  reply->set_epoch(result.epoch);
  reply->set_last_seq(result.last_seq);
  if (result.code == SegmentCode::kOk) return;
  StreamMetrics::Get().CountRefusal(result.code);
  reply->set_code(ToWire(result.code));
  reply->set_detail(result.detail);
  reply->set_retry_after_ms(result.retry_after_ms);
  if (result.code != SegmentCode::kWrongEpoch) return;
  if (const auto record = plane_.host->RecordOf(shard)) ToProto(*record, reply->mutable_record());
}

void ReplyWriter::Finish() { PackColumn(header_->mutable_lsns()); }

void ReplyWriter::RefuseAll(const Refusal& refusal) {
  StreamMetrics::Get().CountRefusal(refusal.code);
  header_->set_code(ToWire(refusal.code));
  header_->set_detail(refusal.detail);
  if (HelpsToRetry(refusal.code)) header_->set_retry_after_ms(plane_.limits.retry_after_ms);
}

grpc::ByteBuffer EncodeHeaderOnly(const v1::ReplyHeader& header) {
  grpc::Slice slice(HeaderFieldBytes(header));
  WriteHeaderField(header, const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace hotbed
