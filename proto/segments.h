// The segments of a message, whose header holds them in columns (proto/data.proto). Readers and
// writers of the columns; free of gRPC. Functions are thread-safe, classes thread-compatible.
#ifndef HOTBED_PROTO_SEGMENTS_H_
#define HOTBED_PROTO_SEGMENTS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/ids.h"
#include "google/protobuf/repeated_field.h"
#include "proto/data.pb.h"

namespace hotbed {

// Reads a column, which must have as many values as there are segments, or one, or none.
template <typename Value>
class Column {
 public:
  explicit Column(const google::protobuf::RepeatedField<Value>& values)
      : values_(values.empty() ? &kDefault : values.data()), step_(values.size() > 1 ? 1 : 0) {}

  Value operator[](uint32_t segment) const { return values_[segment * step_]; }
  Value Sum(uint32_t segments) const {
    Value sum = 0;
    for (uint32_t i = 0; i < segments; ++i) sum += (*this)[i];
    return sum;
  }

 private:
  static constexpr Value kDefault{};
  const Value* values_;
  uint32_t step_;
};

// Shortens a column with one value per segment: to one if all are alike, to none if all are the
// default.
template <typename Value>
void PackColumn(google::protobuf::RepeatedField<Value>* values) {
  if (values->empty()) return;
  const Value first = values->Get(0);
  if (!std::all_of(values->begin(), values->end(), [first](Value v) { return v == first; })) return;
  values->Truncate(first == Value{} ? 0 : 1);
}

void PackColumns(v1::PullGroup* group);
void PackColumns(v1::PushGroup* group);

// The number of segments of a message.
template <typename Group>
uint64_t CountSegments(const google::protobuf::RepeatedPtrField<Group>& groups) {
  uint64_t segments = 0;
  for (const Group& group : groups) segments += static_cast<uint64_t>(group.shards_size());
  return segments;
}

// Names the first column whose number of values does not suit the segments; empty: there is none.
std::string ColumnError(const v1::PullHeader& header);
std::string ColumnError(const v1::PushHeader& header);

// True if the columns and exceptions of a reply suit its segments.
bool IsWhole(const v1::ReplyHeader& reply);

// Walks over the answers to the segments of a reply that is whole.
class ReplySegments {
 public:
  // Begins at segment `first`.
  ReplySegments(const v1::ReplyHeader& reply, uint32_t first) : reply_(reply), lsns_(reply.lsns()) {
    Seek(first);
  }

  // The answer to the next segment: null if it is the usual one, else its exception.
  const v1::SegmentReply* Next() {
    const uint32_t segment = next_++;
    lsn_ = lsns_[segment];
    if (exception_ == reply_.exceptions_size()) return nullptr;
    const v1::SegmentReply& exception = reply_.exceptions(exception_);
    if (exception.segment() != segment) return nullptr;
    ++exception_;
    return &exception;
  }
  Lsn lsn() const { return lsn_; }  // of the segment that Next() has passed

 private:
  void Seek(uint32_t segment) {
    next_ = segment;
    while (exception_ < reply_.exceptions_size() &&
           reply_.exceptions(exception_).segment() < segment) {
      ++exception_;
    }
  }

  const v1::ReplyHeader& reply_;
  const Column<uint64_t> lsns_;
  uint32_t next_ = 0;
  int exception_ = 0;
  Lsn lsn_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PROTO_SEGMENTS_H_
