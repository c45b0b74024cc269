#include "planner/coordinator/state/event_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr size_t kTextBytesMax = 1000;
constexpr uint32_t kListedByDefault = 1000;

// Cuts between characters only: a record that is not UTF-8 could not be read back.
std::string Shortened(const std::string& text) {
  if (text.size() <= kTextBytesMax) return text;
  size_t bytes = kTextBytesMax;
  while (bytes > 0 && (text[bytes] & 0xc0) == 0x80) --bytes;
  return absl::StrCat(text.substr(0, bytes), " ...");
}

}  // namespace

void EventWriter::Add(const std::string& kind, const std::string& text, uint64_t shard,
                      ServerId server, Transaction* txn) {
  const auto& events = state_->events();
  const uint64_t last = events.empty() ? 0 : events.rbegin()->first;
  v1::ClusterEvent event;
  event.set_number(last + ++written_);
  event.set_unix_ms(unix_ms_);
  event.set_kind(kind);
  event.set_text(Shortened(text));
  event.set_shard(shard);
  event.set_server(server);
  txn->Put(keys::Event(event.number()), event.SerializeAsString());
  if (event.number() <= kEventsMax) return;
  const uint64_t oldest = event.number() - kEventsMax;
  if (events.contains(oldest)) txn->Delete(keys::Event(oldest));
}

v1::ListEventsReply ListEvents(const ClusterState& state, const v1::ListEventsRequest& request) {
  v1::ListEventsReply reply;
  const uint64_t limit = request.limit() == 0 ? kListedByDefault : request.limit();
  const auto& events = state.events();
  auto it = events.upper_bound(request.after());
  if (request.after() == 0) {  // the newest ones
    it = events.end();
    for (uint64_t n = 0; n < limit && it != events.begin(); ++n) --it;
  }
  for (uint64_t n = 0; it != events.end() && n < limit; ++it, ++n) *reply.add_events() = it->second;
  return reply;
}

}  // namespace hotbed
