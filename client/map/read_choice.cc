#include "client/map/read_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hotbed {
namespace {

constexpr int64_t kAlikeNs = 500'000;
constexpr uint64_t kProbeEvery = 64;
constexpr double kUsual = 0.95;
constexpr int64_t kAgeNs = 1'000'000'000;

}  // namespace

ReadChoice::Holders ReadChoice::HoldersOf(const ShardRecord& record) {
  Holders holders = {record.primary.server};
  const auto add = [&](ServerId server) {
    if (std::find(holders.begin(), holders.end(), server) == holders.end()) {
      holders.push_back(server);
    }
  };
  for (const Member& m : record.members) add(m.server);
  for (const ServerId reader : record.readers) add(reader);
  std::sort(holders.begin(), holders.end());
  return holders;
}

bool ReadChoice::TriesNow(Seen* seen, uint64_t turn, int64_t now_ns) {
  if (!seen->failed || seen->silent) return false;
  if (seen->on_trial && seen->trial_turn == turn) return true;
  if (seen->retry_ns > now_ns) return false;
  seen->on_trial = true;
  seen->trial_turn = turn;
  seen->retry_ns = now_ns + kForgetNs;
  return true;
}

ServerId ReadChoice::Choose(const ShardRecord& record, uint64_t turn, int64_t now_ns) {
  const Holders holders = HoldersOf(record);
  if (holders.size() == 1) return holders[0];
  absl::InlinedVector<std::pair<ServerId, int64_t>, 8> able;
  int64_t least = std::numeric_limits<int64_t>::max();
  absl::MutexLock lock(&mu_);
  for (const ServerId server : holders) {
    const auto it = seen_.find(server);
    if (it != seen_.end() && !it->second.able()) {
      if (TriesNow(&it->second, turn, now_ns)) return server;
      continue;
    }
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

std::optional<ServerId> ReadChoice::ChooseOther(const ShardRecord& record, ServerId asked,
                                                uint64_t turn) const {
  Holders able = HoldersOf(record);
  absl::MutexLock lock(&mu_);
  able.erase(std::remove_if(able.begin(), able.end(),
                            [&](ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                              const auto it = seen_.find(server);
                              return server == asked || (it != seen_.end() && !it->second.able());
                            }),
             able.end());
  if (able.empty()) return std::nullopt;
  return able[turn % able.size()];
}

void ReadChoice::Sent(ServerId server) {
  hedges_.Sent();
  absl::MutexLock lock(&mu_);
  Seen& seen = seen_[server];
  if (seen.owed++ == 0) seen.silent_ns = 0;
}

void ReadChoice::Answered(ServerId server, int64_t took_ns) {
  absl::MutexLock lock(&mu_);
  Seen& seen = seen_[server];
  seen.Settle();
  seen.silent_ns = 0;
  seen.silent = seen.failed = seen.on_trial = false;
  if (std::exchange(seen.connecting, false)) return;
  took_ns = std::max<int64_t>(took_ns, 1);
  usual_.Add(took_ns);
  if (seen.took_ns == 0) seen.took_ns = took_ns;
  // The average falls faster than it rises: a slow server is asked seldom, and needs to recover in
  // few answers.
  seen.took_ns += (took_ns - seen.took_ns) / (took_ns < seen.took_ns ? 2 : 8);
}

void ReadChoice::Failed(ServerId server, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  Seen& seen = seen_[server];
  seen.Settle();
  seen.silent = seen.on_trial = false;
  seen.silent_ns = 0;
  seen.failed = true;
  seen.retry_ns = now_ns + kForgetNs;
  seen.connecting = true;
}

void ReadChoice::NotSent(ServerId server) {
  absl::MutexLock lock(&mu_);
  seen_[server].Settle();
}

void ReadChoice::Watch(int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  const int64_t passed_ns = std::clamp<int64_t>(now_ns - watched_ns_, 0, 2 * kWatchNs);
  watched_ns_ = now_ns;
  if (now_ns - aged_ns_ >= kAgeNs) {
    aged_ns_ = now_ns;
    usual_.Age();
  }
  usual_ns_ = usual_.Quantile(kUsual);
  const int64_t silent_after_ns =
      usual_ns_ == 0 ? kSilentUnknownNs : std::max(kSilentNsMin, 3 * usual_ns_);
  for (auto& [server, seen] : seen_) {
    if (seen.owed == 0) {
      // Nothing is in flight that could end its silence.
      if (std::exchange(seen.silent, false)) {
        seen.failed = true;
        seen.retry_ns = now_ns + kForgetNs;
      }
      continue;
    }
    seen.silent_ns += passed_ns;
    seen.silent |= seen.silent_ns >= silent_after_ns;
  }
}

bool ReadChoice::Silent(ServerId server) const {
  absl::MutexLock lock(&mu_);
  const auto it = seen_.find(server);
  return it != seen_.end() && it->second.silent;
}

int64_t ReadChoice::HedgeAfterNs() const {
  absl::MutexLock lock(&mu_);
  return usual_ns_ == 0 ? kHedgeAfterUnknownNs : std::max(kHedgeNsMin, usual_ns_);
}

}  // namespace hotbed
