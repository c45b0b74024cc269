#include "client/push/push_message.h"

#include <utility>

#include "proto/convert.h"

namespace hotbed {

OutgoingMessage BuildPushMessage(const SessionIdentity& identity, RowType gradient_type,
                                 absl::Span<const SentPart> parts) {
  thread_local v1::PushHeader header;  // keeps its segments' memory
  header.Clear();
  header.set_gradient_type(ToProto(gradient_type));
  header.set_session(identity.session);
  header.set_incarnation(identity.incarnation);
  OutgoingMessage::Bulk ids{v1::PushRequest::kIdsFieldNumber, {}};
  OutgoingMessage::Bulk gradients{v1::PushRequest::kGradientsFieldNumber, {}};
  for (const SentPart& sent : parts) {
    const PushPart& part = *sent.part;
    v1::PushSegment* segment = header.add_segments();
    segment->set_shard(part.shard_id().packed());
    segment->set_epoch(sent.epoch);
    segment->set_id_count(part.rows);
    segment->set_seq(part.seq);
    segment->set_prev_seq(sent.stamp.prev_seq);
    segment->set_open(sent.stamp.open);
    segment->set_has_learning_rate(part.call->options.has_learning_rate);
    segment->set_learning_rate(part.call->options.learning_rate);
    segment->set_assign(part.call->options.assign);
    segment->set_last_part(part.last_of_shard);
    segment->set_dim(part.columns);
    ids.Append(part.ids.owner, part.ids.data, part.ids.size);
    gradients.Append(part.gradients.owner, part.gradients.data, part.gradients.size);
  }
  OutgoingMessage message;
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(parts.size());
  message.join_key = 1;  // one session, one gradient type: the headers always agree
  message.bulk.push_back(std::move(ids));
  message.bulk.push_back(std::move(gradients));
  return message;
}

}  // namespace hotbed
