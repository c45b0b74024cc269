// PullMessage: cuts a request into segments and lays out its answer.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "server/shard/bag_check.h"
#include "server/streams/pull_stream.h"
#include "server/tiers/api/rows.h"

namespace hotbed {
namespace {

// Bytes in front of the rows for a header without errors, a multiple of 64.
uint64_t HeadRoom(size_t segments) { return (192 + 48 * segments + 63) & ~uint64_t{63}; }

// The shape of the bags that a segment asks for.
BagShape ShapeOf(const v1::PullSegment& asked) {
  BagShape shape;
  shape.pooling = static_cast<RowPooling>(asked.pooling());
  shape.ids = asked.id_count();
  shape.bags = asked.bag_count();
  shape.weighted = asked.weighted();
  shape.arg_max = asked.want_arg_max();
  return shape;
}

template <typename Value>
void CopyField(Fragments fragments, const FragmentRange& range, std::vector<Value>* to) {
  const uint64_t count = range.bytes / sizeof(Value);
  if (to->size() < count) to->resize(count);
  FragmentReader(fragments, range).CopyTo(to->data(), range.bytes);
}

}  // namespace

static_assert(static_cast<int>(RowPooling::kNone) == v1::POOLING_NONE &&
              static_cast<int>(RowPooling::kSum) == v1::POOLING_SUM &&
              static_cast<int>(RowPooling::kMax) == v1::POOLING_MAX);

void PullMessage::TakeHeader(const PullRequestView& view, uint64_t peer_message_bytes_max) {
  const DataPlaneLimits& limits = plane_->limits;
  const v1::PullHeader& header = view.header;
  request_ = header.request();
  has_hello_ = header.has_hello();
  if (has_hello_) {
    hello_ = header.hello();
    peer_message_bytes_max = hello_.message_bytes_max();
  }
  asked_ = header.segments_size();
  want_flags_ = header.want_flags();
  strict = header.strict();
  staleness_ms_max = header.staleness_ms_max();
  if (header.deadline_ms() > 0) deadline_ns = arrival_ns_ + int64_t{1000000} * header.deadline_ms();
  if (request_bytes_ > limits.message_bytes_max) {
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the message has ", request_bytes_, " bytes, the limit is ",
                               limits.message_bytes_max, ": send smaller batches"));
  }
  if (asked_ == 0) return Refuse(SegmentCode::kInvalidArgument, "the message has no segments");
  if (asked_ > limits.segments_max) {
    asked_ = 0;  // the answer need not be as large as the mistake
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the message has ", header.segments_size(),
                               " segments, the limit is ", limits.segments_max));
  }
  const auto type = FromProto(header.row_type());
  if (!type.ok())
    return Refuse(SegmentCode::kInvalidArgument, std::string(type.status().message()));
  row_type = *type;
  TakeSegments(view);
  if (refusal_.ok()) SizeAnswer(peer_message_bytes_max);
}

void PullMessage::TakeSegments(const PullRequestView& view) {
  const v1::PullHeader& header = view.header;
  uint64_t ids = 0;
  uint64_t lengths = 0;
  uint64_t weights = 0;
  static thread_local std::vector<ShardId> shards;
  shards.clear();
  for (const v1::PullSegment& segment : header.segments()) {
    shards.push_back(ShardId::FromPacked(segment.shard()));
    ids += segment.id_count();
    lengths += segment.bag_count();
    weights += segment.weighted() ? segment.id_count() : 0;
  }
  if (ids * 8 != view.ids.bytes) {
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the segments name ", ids, " ids of 8 bytes, the field ids has ",
                               view.ids.bytes, " bytes"));
  }
  // If one of these fields has the wrong size, the parts of its segments cannot be told apart;
  // segments that do not use the field are unaffected.
  lengths_fit_ = lengths * 4 == view.lengths.bytes;
  weights_fit_ = weights * 4 == view.weights.bytes;
  static thread_local std::vector<std::shared_ptr<Shard>> found;
  plane_->host->FindAll(shards, &found);
  SegmentPlace at;
  for (uint32_t i = 0; i < asked_; ++i) {
    const v1::PullSegment& asked = header.segments(i);
    std::string error;
    if (asked.id_count() == 0) {
      error = "asks for no ids";
    } else if (asked.bag_count() > 0 && !lengths_fit_) {
      error = absl::StrCat("the segments name ", lengths,
                           " bags, lengths of 4 bytes, the field lengths has ", view.lengths.bytes,
                           " bytes");
    } else if (asked.weighted() && !weights_fit_) {
      error = absl::StrCat("the weighted segments name ", weights,
                           " ids, weights of 4 bytes, the field weights has ", view.weights.bytes,
                           " bytes");
    } else {
      error = BagsError(asked);
    }
    if (error.empty()) {
      AddSegment(asked, std::move(found[i]), at);
    } else {
      SegmentResult refused;
      refused.code = SegmentCode::kInvalidArgument;
      refused.detail = absl::StrCat("segment ", i, " for ",
                                    ShardId::FromPacked(asked.shard()).ToString(), ": ", error);
      refusals_.emplace_back(i, std::move(refused));
    }
    at.id_at += asked.id_count();
    at.length_at += asked.bag_count();
    at.weight_at += asked.weighted() ? asked.id_count() : 0;
  }
  found.clear();  // refused segments have left theirs
}

std::string PullMessage::BagsError(const v1::PullSegment& asked) const {
  if (!v1::Pooling_IsValid(asked.pooling())) {
    return absl::StrCat("unknown pooling ", static_cast<int>(asked.pooling()),
                        ": known are 0 (none), 1 (sum) and 2 (max)");
  }
  return BagShapeError(ShapeOf(asked), row_type);
}

void PullMessage::AddSegment(const v1::PullSegment& asked, std::shared_ptr<Shard> shard,
                             const SegmentPlace& at) {
  PullSegment& segment = segments.emplace_back();
  segment.shard_id = ShardId::FromPacked(asked.shard());
  segment.epoch = asked.epoch();
  segment.lsn_min = asked.lsn_min();
  segment.count = asked.id_count();
  segment.pooling = static_cast<RowPooling>(asked.pooling());
  segment.bags = asked.bag_count();
  segment.shard = std::move(shard);
  SegmentPlace& place = places_.emplace_back(at);
  // PlaceRows() points to the weights once they have been copied.
  place.weighted = asked.weighted();
  if (segment.shard == nullptr) return;
  const uint32_t dim = ShardHost::DimOf(*segment.shard);
  const bool pooled = segment.pooling != RowPooling::kNone;
  const uint64_t rows = pooled ? segment.bags : segment.count;
  place.row_bytes = rows * RowWireBytes(row_type, dim);
  if (asked.want_arg_max()) place.arg_bytes = rows * 4 * dim;
  if (pooled) stage_bytes_ += std::min(uint64_t{segment.count} * 4 * dim, kPoolStageBytes);
  rows_ += segment.count;
  row_bytes_ += place.row_bytes;
  arg_bytes_ += place.arg_bytes;
}

void PullMessage::SizeAnswer(uint64_t peer_message_bytes_max) {
  rows_at_ = HeadRoom(asked_);
  answer_bytes_ = rows_at_ + row_bytes_;
  if (want_flags_) {
    flags_at_ = answer_bytes_ + BulkTagBytes(v1::PullReply::kFlagsFieldNumber, rows_);
    answer_bytes_ = flags_at_ + rows_;
  }
  if (arg_bytes_ > 0) {
    args_at_ = answer_bytes_ + BulkTagBytes(v1::PullReply::kArgMaxFieldNumber, arg_bytes_);
    answer_bytes_ = args_at_ + arg_bytes_;
  }
  const uint64_t limit = peer_message_bytes_max == 0
                             ? plane_->limits.message_bytes_max
                             : std::min(plane_->limits.message_bytes_max, peer_message_bytes_max);
  if (answer_bytes_ <= limit) return;
  uint64_t ids = 0;
  for (const PullSegment& segment : segments) ids += segment.count;
  Refuse(SegmentCode::kInvalidArgument,
         absl::StrCat("the answer to ", ids, " ids would have ", answer_bytes_,
                      " bytes, the limit is ", limit, ": ask for fewer ids a message"));
  answer_bytes_ = stage_bytes_ = 0;
}

void PullMessage::CopyBulk(Fragments fragments, const PullRequestView& view) {
  CopyField(fragments, view.ids, &ids_);
  if (lengths_fit_) CopyField(fragments, view.lengths, &lengths_);
  if (weights_fit_) CopyField(fragments, view.weights, &weights_);
}

void PullMessage::PlaceRows() {
  answer_ = plane_->answers->Take(answer_bytes_);
  answer = answer_;
  uint8_t* rows = answer_->data + rows_at_;
  uint8_t* flags = answer_->data + flags_at_;
  uint8_t* args = answer_->data + args_at_;
  for (size_t i = 0; i < segments.size(); ++i) {
    PullSegment& segment = segments[i];
    const SegmentPlace& place = places_[i];
    segment.ids = ids_.data() + place.id_at;
    if (segment.shard == nullptr) continue;
    if (segment.pooling != RowPooling::kNone) {
      segment.bag_lengths = lengths_.data() + place.length_at;
      if (place.weighted) segment.weights = weights_.data() + place.weight_at;
    }
    segment.rows = rows;
    rows += place.row_bytes;
    if (want_flags_) {
      segment.flags = flags;
      flags += segment.count;
    }
    if (place.arg_bytes > 0) {
      segment.arg_max = args;
      args += place.arg_bytes;
    }
  }
}

}  // namespace hotbed
