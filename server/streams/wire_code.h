// The codes of the wire and of the shards are one list.
#ifndef HOTBED_SERVER_STREAMS_WIRE_CODE_H_
#define HOTBED_SERVER_STREAMS_WIRE_CODE_H_

#include "proto/data.pb.h"
#include "server/shard/requests.h"

namespace hotbed {

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
static_assert(v1::Code_ARRAYSIZE == static_cast<int>(SegmentCode::kStepOver) + 1);

inline v1::Code ToWire(SegmentCode code) { return static_cast<v1::Code>(code); }

static_assert(static_cast<int>(RowType::kFp32) == v1::ROW_FP32);
static_assert(static_cast<int>(RowType::kFp16) == v1::ROW_FP16);
static_assert(static_cast<int>(RowType::kBf16) == v1::ROW_BF16);
static_assert(static_cast<int>(RowType::kInt8) == v1::ROW_INT8);

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_WIRE_CODE_H_
