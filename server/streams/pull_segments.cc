// PullMessage: cuts a request into segments and lays out its answer.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "proto/segments.h"
#include "server/shard/request/bag_check.h"
#include "server/streams/pull_stream.h"
#include "server/tiers/api/rows.h"

namespace hotbed {
namespace {

// Bytes in front of the rows for a header without errors, a multiple of 64.
uint64_t HeadRoom(size_t segments) { return (192 + 10 * segments + 63) & ~uint64_t{63}; }

template <typename Value>
void CopyField(Fragments fragments, const FragmentRange& range, std::vector<Value>* to) {
  const uint64_t count = range.bytes / sizeof(Value);
  if (to->size() < count) to->resize(count);
  FragmentReader(fragments, range).CopyTo(to->data(), range.bytes);
}

// How many values the segments of a message name for each bulk field.
struct BulkCounts {
  uint64_t ids = 0;
  uint64_t lengths = 0;
  uint64_t weights = 0;
};

BulkCounts CountBulk(const v1::PullHeader& header) {
  BulkCounts counts;
  for (const v1::PullGroup& group : header.groups()) {
    const uint32_t segments = static_cast<uint32_t>(group.shards_size());
    const uint64_t ids = Column(group.id_counts()).Sum(segments);
    counts.ids += ids;
    counts.lengths += Column(group.bag_counts()).Sum(segments);
    counts.weights += group.weighted() ? ids : 0;
  }
  return counts;
}

}  // namespace

static_assert(static_cast<int>(RowPooling::kNone) == v1::POOLING_NONE &&
              static_cast<int>(RowPooling::kSum) == v1::POOLING_SUM &&
              static_cast<int>(RowPooling::kMax) == v1::POOLING_MAX);

void PullMessage::TakeHeader(const PullRequestView& view, uint64_t peer_message_bytes_max,
                             StreamTables* tables) {
  const DataPlaneLimits& limits = plane_->limits;
  const v1::PullHeader& header = view.header;
  request_ = header.request();
  has_hello_ = header.has_hello();
  if (has_hello_) {
    hello_ = header.hello();
    peer_message_bytes_max = hello_.message_bytes_max();
  }
  traces_.Take(header.traceparents());
  const uint64_t asked = CountSegments(header.groups());
  asked_ = static_cast<uint32_t>(asked);
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
  if (asked > limits.segments_max) {
    return Refuse(
        SegmentCode::kInvalidArgument,
        absl::StrCat("the message has ", asked, " segments, the limit is ", limits.segments_max));
  }
  if (std::string error = ColumnError(header); !error.empty()) {
    return Refuse(SegmentCode::kInvalidArgument, std::move(error));
  }
  const auto type = FromProto(header.row_type());
  if (!type.ok())
    return Refuse(SegmentCode::kInvalidArgument, std::string(type.status().message()));
  row_type = *type;
  TakeSegments(view, tables);
  if (refusal_.ok()) SizeAnswer(peer_message_bytes_max);
}

void PullMessage::TakeSegments(const PullRequestView& view, StreamTables* tables) {
  const v1::PullHeader& header = view.header;
  const BulkCounts counts = CountBulk(header);
  if (counts.ids * 8 != view.ids.bytes) {
    return Refuse(SegmentCode::kInvalidArgument,
                  absl::StrCat("the segments name ", counts.ids,
                               " ids of 8 bytes, the field ids has ", view.ids.bytes, " bytes"));
  }
  // If one of these fields has the wrong size, the parts of its segments cannot be told apart;
  // segments that do not use the field are unaffected.
  if (counts.lengths * 4 != view.lengths.bytes) {
    lengths_misfit_ = absl::StrCat("the segments name ", counts.lengths,
                                   " bags, lengths of 4 bytes, the field lengths has ",
                                   view.lengths.bytes, " bytes");
  }
  if (counts.weights * 4 != view.weights.bytes) {
    weights_misfit_ = absl::StrCat("the weighted segments name ", counts.weights,
                                   " ids, weights of 4 bytes, the field weights has ",
                                   view.weights.bytes, " bytes");
  }
  static thread_local std::vector<ShardId> names;
  static thread_local std::vector<Shard*> found;
  names.clear();
  for (const v1::PullGroup& group : header.groups()) {
    for (const uint32_t index : group.shards()) names.push_back({group.table(), index});
  }
  shards = plane_->host->FindAll(names, &found);
  segments.reserve(asked_);
  places_.reserve(asked_);
  SegmentPlace at;
  Shard* const* next = found.data();
  for (const v1::PullGroup& group : header.groups()) {
    TakeGroup(group, next, tables, &at);
    next += group.shards_size();
  }
}

void PullMessage::TakeGroup(const v1::PullGroup& group, Shard* const* found, StreamTables* tables,
                            SegmentPlace* at) {
  const Column epochs(group.epochs());
  const Column id_counts(group.id_counts());
  const Column lsns_min(group.lsns_min());
  const Column bag_counts(group.bag_counts());
  at->weighted = group.weighted();
  // Segments without bags, as most are, need no look at each rule of bags.
  const bool plain =
      group.pooling() == v1::POOLING_NONE && !group.weighted() && !group.want_arg_max();
  for (int i = 0; i < group.shards_size(); ++i) {
    PullSegment& segment = segments.emplace_back();
    segment.shard_id = {group.table(), group.shards(i)};
    segment.epoch = epochs[i];
    segment.lsn_min = lsns_min[i];
    segment.count = id_counts[i];
    segment.pooling = static_cast<RowPooling>(group.pooling());
    segment.bags = bag_counts[i];
    segment.shard = found[i];
    SegmentPlace& place = places_.emplace_back(*at);
    at->id_at += segment.count;
    at->length_at += segment.bags;
    at->weight_at += at->weighted ? segment.count : 0;
    std::string error;
    if (!plain || segment.count == 0 || segment.bags > 0) error = SegmentError(group, segment);
    if (!error.empty()) {
      RefuseLast(SegmentCode::kInvalidArgument, std::move(error));
    } else if (segment.shard == nullptr) {
      continue;
    } else if (tables != nullptr && !tables->Check(group.table(), *segment.shard).ok()) {
      RefuseLast(SegmentCode::kPermissionDenied,
                 std::string(tables->Check(group.table(), *segment.shard).message()));
    } else {
      SizeRows(segment, group.want_arg_max(), &place);
    }
  }
}

std::string PullMessage::SegmentError(const v1::PullGroup& group,
                                      const PullSegment& segment) const {
  if (segment.count == 0) return "asks for no ids";
  if (segment.bags > 0 && !lengths_misfit_.empty()) return lengths_misfit_;
  if (group.weighted() && !weights_misfit_.empty()) return weights_misfit_;
  if (!v1::Pooling_IsValid(group.pooling())) {
    return absl::StrCat("unknown pooling ", static_cast<int>(group.pooling()),
                        ": known are 0 (none), 1 (sum) and 2 (max)");
  }
  BagShape shape;
  shape.pooling = segment.pooling;
  shape.ids = segment.count;
  shape.bags = segment.bags;
  shape.weighted = group.weighted();
  shape.arg_max = group.want_arg_max();
  return BagShapeError(shape, row_type);
}

// Takes the newest segment back.
void PullMessage::RefuseLast(SegmentCode code, std::string error) {
  const uint32_t number = static_cast<uint32_t>(segments.size() - 1 + refusals_.size());
  SegmentResult refused;
  refused.code = code;
  refused.detail =
      absl::StrCat("segment ", number, " for ", segments.back().shard_id.ToString(), ": ", error);
  refusals_.emplace_back(number, std::move(refused));
  segments.pop_back();
  places_.pop_back();
}

void PullMessage::SizeRows(const PullSegment& segment, bool want_arg_max, SegmentPlace* place) {
  const uint32_t dim = ShardHost::DimOf(*segment.shard);
  const bool pooled = segment.pooling != RowPooling::kNone;
  const uint64_t rows = pooled ? segment.bags : segment.count;
  place->row_bytes = rows * RowWireBytes(row_type, dim);
  if (want_arg_max) place->arg_bytes = rows * 4 * dim;
  if (pooled) stage_bytes_ += std::min(uint64_t{segment.count} * 4 * dim, kPoolStageBytes);
  rows_ += segment.count;
  row_bytes_ += place->row_bytes;
  arg_bytes_ += place->arg_bytes;
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
  if (lengths_misfit_.empty()) CopyField(fragments, view.lengths, &lengths_);
  if (weights_misfit_.empty()) CopyField(fragments, view.weights, &weights_);
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
