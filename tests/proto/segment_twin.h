// The dumb twin of proto/segments.h: the segments of a message one by one, for tests that ask or
// answer as another implementation of the wire would.
#ifndef HOTBED_TESTS_PROTO_SEGMENT_TWIN_H_
#define HOTBED_TESTS_PROTO_SEGMENT_TWIN_H_

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "proto/data.pb.h"

namespace hotbed {

struct PullAsk {
  ShardId shard;
  Epoch epoch = 0;
  uint32_t id_count = 0;
  Lsn lsn_min = 0;
  v1::Pooling pooling = v1::POOLING_NONE;
  uint32_t bag_count = 0;
  bool weighted = false;
  bool want_arg_max = false;
};

struct PushAsk {
  ShardId shard;
  Epoch epoch = 0;
  uint32_t id_count = 0;
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  bool open = false;
  bool last_part = false;
  uint32_t dim = 0;
  uint32_t commit = 0;
};

template <typename Values>
auto ColumnAt(const Values& values, int segment) {
  using Value = std::decay_t<decltype(values.Get(0))>;
  if (values.size() == 0) return Value{};
  return values.Get(values.size() == 1 ? 0 : segment);
}

inline std::vector<PullAsk> AskedOf(const v1::PullHeader& header) {
  std::vector<PullAsk> asked;
  for (const v1::PullGroup& group : header.groups()) {
    for (int i = 0; i < group.shards_size(); ++i) {
      asked.push_back({.shard = {group.table(), group.shards(i)},
                       .epoch = ColumnAt(group.epochs(), i),
                       .id_count = ColumnAt(group.id_counts(), i),
                       .lsn_min = ColumnAt(group.lsns_min(), i),
                       .pooling = group.pooling(),
                       .bag_count = ColumnAt(group.bag_counts(), i),
                       .weighted = group.weighted(),
                       .want_arg_max = group.want_arg_max()});
    }
  }
  return asked;
}

inline std::vector<PushAsk> AskedOf(const v1::PushHeader& header) {
  std::vector<PushAsk> asked;
  for (const v1::PushGroup& group : header.groups()) {
    for (int i = 0; i < group.shards_size(); ++i) {
      const uint64_t seq = (group.step() << 20) + ColumnAt(group.numbers(), i);
      const uint64_t distance = ColumnAt(group.distances(), i);
      asked.push_back({.shard = {group.table(), group.shards(i)},
                       .epoch = ColumnAt(group.epochs(), i),
                       .id_count = ColumnAt(group.id_counts(), i),
                       .seq = seq,
                       .prev_seq = distance == 0 ? 0 : seq - distance,
                       .open = ColumnAt(group.opens(), i),
                       .last_part = ColumnAt(group.last_parts(), i),
                       .dim = ColumnAt(group.dims(), i),
                       .commit = group.commit()});
    }
  }
  return asked;
}

// Adds a group of one segment.
inline v1::PullGroup* AddSegment(const PullAsk& ask, v1::PullHeader* header) {
  v1::PullGroup* const group = header->add_groups();
  group->set_table(ask.shard.table);
  group->add_shards(ask.shard.index);
  group->add_epochs(ask.epoch);
  group->add_id_counts(ask.id_count);
  group->add_lsns_min(ask.lsn_min);
  group->set_pooling(ask.pooling);
  group->add_bag_counts(ask.bag_count);
  group->set_weighted(ask.weighted);
  group->set_want_arg_max(ask.want_arg_max);
  return group;
}

inline v1::PushGroup* AddSegment(const PushAsk& ask, v1::PushHeader* header) {
  v1::PushGroup* const group = header->add_groups();
  group->set_table(ask.shard.table);
  group->add_shards(ask.shard.index);
  group->add_epochs(ask.epoch);
  group->add_id_counts(ask.id_count);
  group->set_step(ask.seq >> 20);
  group->add_numbers(static_cast<uint32_t>(ask.seq & 0xfffff));
  group->add_distances(ask.prev_seq == 0 ? 0 : ask.seq - ask.prev_seq);
  group->add_opens(ask.open);
  group->add_last_parts(ask.last_part);
  group->add_dims(ask.dim);
  group->set_commit(ask.commit);
  return group;
}

// The answer to a segment; of the usual one only the code counts.
inline v1::SegmentReply AnswerOf(const v1::ReplyHeader& reply, uint32_t segment) {
  for (const v1::SegmentReply& exception : reply.exceptions()) {
    if (exception.segment() == segment) return exception;
  }
  return {};
}

// Adds the answer to the next segment, which asked for `epoch` and had the sequence `seq` (0: a
// pull).
inline void AddAnswer(v1::SegmentReply answer, Lsn lsn, Epoch epoch, uint64_t seq,
                      v1::ReplyHeader* reply) {
  answer.set_segment(reply->segments());
  reply->set_segments(reply->segments() + 1);
  reply->add_lsns(lsn);
  const bool usual = answer.code() == v1::OK && answer.epoch() == epoch && answer.last_seq() == seq;
  if (!usual) *reply->add_exceptions() = std::move(answer);
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PROTO_SEGMENT_TWIN_H_
