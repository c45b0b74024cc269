#include "client/map/read_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace hotbed {
namespace {

constexpr int64_t kAlikeNs = 500'000;
constexpr uint64_t kProbeEvery = 64;

}  // namespace

ServerId ReadChoice::Choose(const ShardRecord& record, uint64_t turn, int64_t now_ns) const {
  absl::InlinedVector<ServerId, 8> holders = {record.primary.server};
  const auto add = [&](ServerId server) {
    if (std::find(holders.begin(), holders.end(), server) == holders.end()) {
      holders.push_back(server);
    }
  };
  for (const Member& m : record.members) add(m.server);
  for (const ServerId reader : record.readers) add(reader);
  if (holders.size() == 1) return holders[0];
  // Sorted by server, so that a call reads all shards that a server holds from that server.
  std::sort(holders.begin(), holders.end());
  absl::InlinedVector<std::pair<ServerId, int64_t>, 8> able;
  int64_t least = std::numeric_limits<int64_t>::max();
  absl::MutexLock lock(&mu_);
  for (const ServerId server : holders) {
    const auto it = seen_.find(server);
    if (it != seen_.end() && it->second.failed_until_ns > now_ns) continue;
    able.emplace_back(server, it == seen_.end() ? 0 : it->second.took_ns);
    least = std::min(least, able.back().second);
  }
  if (able.empty()) return record.primary.server;
  // Sometimes every server has a turn; otherwise a slow one that became fast would not be noticed.
  if (turn % kProbeEvery == kProbeEvery - 1) return able[turn / kProbeEvery % able.size()].first;
  able.erase(std::remove_if(able.begin(), able.end(),
                            [&](const auto& s) { return s.second > 2 * least + kAlikeNs; }),
             able.end());
  return able[turn % able.size()].first;
}

void ReadChoice::Answered(ServerId server, int64_t took_ns) {
  absl::MutexLock lock(&mu_);
  Seen& seen = seen_[server];
  seen.failed_until_ns = 0;
  if (std::exchange(seen.connecting, false)) return;
  took_ns = std::max<int64_t>(took_ns, 1);
  if (seen.took_ns == 0) seen.took_ns = took_ns;
  // The average falls faster than it rises: a slow server is asked seldom, and needs to recover in
  // few answers.
  seen.took_ns += (took_ns - seen.took_ns) / (took_ns < seen.took_ns ? 2 : 8);
}

void ReadChoice::Failed(ServerId server, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  Seen& seen = seen_[server];
  seen.failed_until_ns = now_ns + kForgetNs;
  seen.connecting = true;
}

}  // namespace hotbed
