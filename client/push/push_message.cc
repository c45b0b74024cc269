#include "client/push/push_message.h"

#include <string>
#include <utility>

#include "proto/convert.h"
#include "proto/segments.h"

namespace hotbed {

namespace {

// Whether two parts may stand in one group.
bool Alike(const PushPart& a, const PushPart& b) {
  return a.table == b.table && a.call == b.call && a.shows == b.shows;
}

void BeginGroup(const PushPart& part, v1::PushGroup* group) {
  const PushOptions& options = part.call->options;
  group->set_table(part.table->id());
  group->set_step(part.call->step);
  if (options.has_learning_rate) group->set_learning_rate(options.learning_rate);
  group->set_assign(options.assign);
  group->set_deletes(part.call->deletes);
  group->set_shows(part.shows);
}

// Calls follow one another.
void AddTrace(const std::string& traceparent, v1::PushHeader* header) {
  const int traces = header->traceparents_size();
  if (traceparent.empty()) return;
  if (traces > 0 && header->traceparents(traces - 1) == traceparent) return;
  header->add_traceparents(traceparent);
}

void AddSegment(const SentPart& sent, v1::PushGroup* group) {
  const PushPart& part = *sent.part;
  group->add_shards(sent.shard);
  group->add_epochs(sent.epoch);
  group->add_id_counts(part.rows);
  group->add_numbers(static_cast<uint32_t>(part.seq & kPartsPerStepMax));
  group->add_distances(sent.stamp.prev_seq == 0 ? 0 : part.seq - sent.stamp.prev_seq);
  group->add_opens(sent.stamp.open);
  group->add_last_parts(part.last_of_shard);
  group->add_dims(part.columns);
}

}  // namespace

OutgoingMessage BuildPushMessage(const SessionIdentity& identity, RowType gradient_type,
                                 absl::Span<const SentPart> parts) {
  thread_local v1::PushHeader header;  // keeps its columns' memory
  header.Clear();
  header.set_gradient_type(ToProto(gradient_type));
  header.set_session(identity.session);
  header.set_incarnation(identity.incarnation);
  OutgoingMessage::Bulk ids{v1::PushRequest::kIdsFieldNumber, {}};
  OutgoingMessage::Bulk gradients{v1::PushRequest::kGradientsFieldNumber, {}};
  v1::PushGroup* group = nullptr;
  const PushPart* before = nullptr;
  for (const SentPart& sent : parts) {
    const PushPart& part = *sent.part;
    if (before == nullptr || !Alike(*before, part)) {
      if (group != nullptr) PackColumns(group);
      group = header.add_groups();
      BeginGroup(part, group);
      AddTrace(part.call->traceparent, &header);
    }
    before = &part;
    AddSegment(sent, group);
    ids.Append(*part.buffer, part.ids.data, part.ids.size);
    gradients.Append(*part.buffer, part.gradients.data, part.gradients.size);
  }
  if (group != nullptr) PackColumns(group);
  OutgoingMessage message;
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(parts.size());
  message.join_key = 1;  // one session, one gradient type: the headers always agree
  message.bulk.push_back(std::move(ids));
  message.bulk.push_back(std::move(gradients));
  return message;
}

}  // namespace hotbed
