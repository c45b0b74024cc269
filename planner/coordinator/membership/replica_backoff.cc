#include "planner/coordinator/membership/replica_backoff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace hotbed {
namespace {

int64_t WaitNs(uint32_t lost) {
  int64_t wait_ns = ReplicaBackoff::kLostAgainNs;
  for (uint32_t n = 2; n < lost && wait_ns < ReplicaBackoff::kLostNsMax; ++n) wait_ns *= 2;
  return lost < 2 ? 0 : std::min(wait_ns, ReplicaBackoff::kLostNsMax);
}

std::string SecondsText(int64_t ns) { return absl::StrCat((ns + kSecondNs - 1) / kSecondNs, " s"); }

}  // namespace

ReplicaBackoff::Failures& ReplicaBackoff::Of(uint64_t shard, ServerId server) {
  std::vector<Failures>& all = of_shard_[shard];
  for (Failures& failures : all) {
    if (failures.server == server) return failures;
  }
  all.push_back({.server = server});
  return all.back();
}

void ReplicaBackoff::NoteUnreached(uint64_t shard, ServerId server, int64_t now_ns) {
  Failures& failures = Of(shard, server);
  failures.unreached = true;
  failures.until_ns = std::max(failures.until_ns, now_ns + kUnreachedNs);
}

std::string ReplicaBackoff::NoteLost(uint64_t shard, ServerId server, int64_t now_ns) {
  Failures& failures = Of(shard, server);
  if (now_ns - failures.last_lost_ns >= kForgottenNs + WaitNs(failures.lost)) failures.lost = 0;
  failures.last_lost_ns = now_ns;
  ++failures.lost;
  if (failures.lost < 2) return "";
  const int64_t wait_ns = WaitNs(failures.lost);
  failures.unreached = false;
  failures.until_ns = now_ns + wait_ns;
  return absl::StrCat("lost there ", failures.lost, " times in a row, not made there again for ",
                      SecondsText(wait_ns));
}

std::vector<ServerId> ReplicaBackoff::Avoided(uint64_t shard, int64_t now_ns) const {
  std::vector<ServerId> avoided;
  const auto it = of_shard_.find(shard);
  if (it == of_shard_.end()) return avoided;
  for (const Failures& failures : it->second) {
    if (now_ns < failures.until_ns) avoided.push_back(failures.server);
  }
  return avoided;
}

std::string ReplicaBackoff::Why(uint64_t shard, ServerId server, int64_t now_ns) const {
  const auto it = of_shard_.find(shard);
  if (it == of_shard_.end()) return "";
  for (const Failures& failures : it->second) {
    if (failures.server != server || now_ns >= failures.until_ns) continue;
    const std::string left = SecondsText(failures.until_ns - now_ns);
    if (failures.unreached) {
      return absl::StrCat(
          "it and a primary of the shard do not hear of each other; asked again in ", left);
    }
    return absl::StrCat("its replica was lost ", failures.lost, " times in a row; asked again in ",
                        left);
  }
  return "";
}

}  // namespace hotbed
