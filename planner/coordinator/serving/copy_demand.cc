#include "planner/coordinator/serving/copy_demand.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace hotbed {
namespace {

// One copy less must leave the others this far below the limit, so that a load that stays as it is
// raises the number and never lowers it again.
constexpr double kCalmShare = 0.7;

}  // namespace

void CopyRates::Note(int64_t now_ns, int64_t average_ns, const v1::ServingReport& report) {
  absl::btree_map<Key, Rate> next;
  for (const v1::ReplicaReport& replica : report.replicas()) {
    const ServedPart part = ServedPartOf(replica);
    const Key key(replica.table(), part.part, part.parts);
    const uint64_t total = replica.lookup_rows_total();
    Rate rate = {.rows_total = total, .since_ns = now_ns};
    const auto known = rates_.find(key);
    if (known != rates_.end() && run_ == report.run() && total >= known->second.rows_total) {
      rate = known->second;
      const double passed_ns = static_cast<double>(now_ns - rate.since_ns);
      if (passed_ns > 0) {
        const double now_per_s = static_cast<double>(total - rate.rows_total) * 1e9 / passed_ns;
        rate.rows_per_s +=
            (now_per_s - rate.rows_per_s) *
            (1 - std::exp(-passed_ns / static_cast<double>(std::max<int64_t>(average_ns, 1))));
        rate.rows_total = total;
        rate.since_ns = now_ns;
      }
    }
    next[key] = rate;
  }
  rates_ = std::move(next);
  run_ = report.run();
}

double CopyRates::RowsPerS(TableId table, const ServedPart& part) const {
  const auto rate = rates_.find({table, part.part, part.parts});
  return rate == rates_.end() ? 0 : rate->second.rows_per_s;
}

void CopyDemand::KeepOnly(const absl::btree_map<TableId, v1::ServedTable>& tables) {
  for (auto it = tables_.begin(); it != tables_.end();) {
    const auto table = tables.find(it->first);
    const bool keeps = table != tables.end() && table->second.replicas_max() != 0;
    it = keeps ? std::next(it) : tables_.erase(it);
  }
}

uint32_t CopyDemand::Wanted(int64_t now_ns, const v1::ServedTable& table, const Load& load) {
  const uint32_t now = table.replicas();
  const uint32_t least = table.replicas_min(), most = table.replicas_max();
  if (now < least || now > most) return std::clamp(now, least, most);
  Window& window = tables_[table.table()];
  if (window.replicas != now) window = {.replicas = now};
  const bool above =
      load.may_raise && now < most && load.rows_per_s > now * options_.rows_per_s_max;
  const bool calm = load.may_lower && now > least &&
                    load.rows_per_s < (now - 1) * options_.rows_per_s_max * kCalmShare;
  if (!above) window.above_since_ns = -1;
  if (!calm) window.calm_since_ns = -1;
  if (above && window.above_since_ns < 0) window.above_since_ns = now_ns;
  if (calm && window.calm_since_ns < 0) window.calm_since_ns = now_ns;
  if (above && now_ns - window.above_since_ns >= options_.raise_after_ns) return now + 1;
  if (calm && now_ns - window.calm_since_ns >= options_.lower_after_ns) return now - 1;
  return now;
}

}  // namespace hotbed
