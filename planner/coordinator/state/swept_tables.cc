#include "planner/coordinator/state/swept_tables.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/state/event_log.h"

namespace hotbed {

void SweptTables::OnHeartbeat(const ClusterState& state, const v1::HeartbeatRequest& request) {
  Heard& heard = heard_[request.server()];
  const bool first = heard.incarnation == 0;
  if (heard.incarnation != request.incarnation()) heard = {request.incarnation(), {}};
  const auto dropped = [&](const auto& one) { return !state.tables().contains(one.first); };
  std::erase_if(heard.tables, dropped);
  std::erase_if(open_, dropped);
  for (const v1::TableLoad& load : request.load().tables()) {
    const Totals now = {load.rows_expired_total(), load.rows_evicted_total()};
    // Most tables delete nothing, and a heartbeat may name a thousand.
    if (now == Totals() && !heard.tables.contains(load.table())) continue;
    const Totals before = std::exchange(heard.tables[load.table()], now);
    // A shard that leaves takes its counts along.
    const uint64_t expired = now.expired - std::min(now.expired, before.expired);
    const uint64_t evicted = now.evicted - std::min(now.evicted, before.evicted);
    if (first || expired + evicted == 0) continue;
    open_[load.table()].expired += expired;
    open_[load.table()].evicted += evicted;
  }
}

std::vector<SweptTables::Swept> SweptTables::Take(int64_t now_ns) {
  std::vector<Swept> swept;
  for (auto& [table, open] : open_) {
    if (open.expired + open.evicted == 0) continue;
    if (open.told_ns != 0 && now_ns - open.told_ns < kEveryNs) continue;
    const int64_t seconds = open.told_ns == 0 ? 0 : (now_ns - open.told_ns) / 1'000'000'000;
    swept.push_back({table, open.expired, open.evicted, seconds});
    open = {0, 0, now_ns};
  }
  return swept;
}

Operation MakeSweptEvents(std::vector<SweptTables::Swept> swept, int64_t unix_ms) {
  return [swept = std::move(swept), unix_ms,
          written = false](const ClusterState& state) mutable -> Next {
    Transaction txn(&state);
    EventWriter events(&state, unix_ms);
    for (const SweptTables::Swept& one : swept) {
      const auto table = state.tables().find(one.table);
      if (written || table == state.tables().end()) continue;
      events.Add(
          "rows_swept",
          absl::StrCat("table ", table->second.name(), ": ", one.expired, " rows expired and ",
                       one.evicted, " were evicted",
                       one.seconds == 0 ? std::string() : absl::StrCat(" in ", one.seconds, " s")),
          0, 0, &txn);
    }
    written = true;
    if (txn.empty()) return Reply();
    return txn;
  };
}

}  // namespace hotbed
