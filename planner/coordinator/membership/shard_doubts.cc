#include "planner/coordinator/membership/shard_doubts.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/state/record_text.h"

namespace hotbed {
namespace {

constexpr int kDoubtsListed = 10'000;

// The server's replica as it has said itself, if it lives.
std::optional<HeldReplica> Said(const ClusterState& state, const MemberReports& reports,
                                uint64_t shard, ServerId server) {
  const auto info = state.servers().find(server);
  if (info == state.servers().end() || !info->second.live()) return std::nullopt;
  return reports.Held(shard, {server, info->second.incarnation()});
}

std::string ChooseText(const ClusterState& state, const ShardRecord& record) {
  const std::string name = state.ShardName(record.shard.packed());
  const size_t slash = name.rfind('/');
  return absl::StrCat("'hotbed shard choose ", name.substr(0, slash), " ", name.substr(slash + 1),
                      " --server ", state.ServerName(record.primary.server), "'");
}

}  // namespace

ShardDoubts::News ShardDoubts::NoteStopped(const ShardRecord& record, const std::string& text,
                                           int64_t unix_ms) {
  const auto [it, added] = doubts_.try_emplace(record.shard.packed());
  v1::ShardDoubt& doubt = it->second;
  const bool news = !doubt.stopped();
  if (news) doubt.set_since_unix_ms(unix_ms);
  doubt.set_shard(record.shard.packed());
  doubt.set_stopped(true);
  doubt.set_holds_more(false);
  doubt.clear_servers();
  doubt.set_text(text);
  return news ? News::kStopped : News::kNone;
}

ShardDoubts::News ShardDoubts::NoteServed(const ClusterState& state, const MemberReports& reports,
                                          const ShardRecord& record, int64_t unix_ms) {
  if (record.passed_over.empty()) {
    doubts_.erase(record.shard.packed());
    return News::kNone;
  }
  v1::ShardDoubt doubt;
  doubt.set_shard(record.shard.packed());
  std::string text;
  for (const PassedOver& passed : record.passed_over) {
    doubt.add_servers(passed.server);
    const auto said = Said(state, reports, record.shard.packed(), passed.server);
    const bool more = said.has_value() && !said->nothing && said->end > passed.chosen;
    doubt.set_holds_more(doubt.holds_more() || more);
    absl::StrAppend(&text, text.empty() ? "" : "; ", state.ServerName(passed.server),
                    more ? absl::StrCat(" holds more, up to ", LogEndText(said->end))
                         : " may hold more and was not heard of",
                    ": the replica that was taken ended at ", LogEndText(passed.chosen));
  }
  const std::string choose = ChooseText(state, record);
  absl::StrAppend(
      &text,
      doubt.holds_more() ? "; it is kept until a person decides: " : "; start it, or give it up: ",
      choose, doubt.holds_more() ? " gives it up; to go back to it, stop " : "",
      doubt.holds_more() ? absl::StrCat(state.ServerName(record.primary.server), " and choose it")
                         : "");
  doubt.set_text(text);
  const auto [it, added] = doubts_.try_emplace(record.shard.packed());
  const bool news = doubt.holds_more() && !it->second.holds_more();
  doubt.set_since_unix_ms(added || it->second.stopped() ? unix_ms : it->second.since_unix_ms());
  it->second = std::move(doubt);
  return news ? News::kHoldsMore : News::kNone;
}

std::string ShardDoubts::TextOf(uint64_t packed) const {
  const auto it = doubts_.find(packed);
  return it == doubts_.end() ? "" : it->second.text();
}

void ShardDoubts::List(v1::ListMovesReply* reply) const {
  reply->set_doubts_total(doubts_.size());
  for (const auto& [packed, doubt] : doubts_) {
    if (reply->doubts_size() == kDoubtsListed) return;
    *reply->add_doubts() = doubt;
  }
}

}  // namespace hotbed
