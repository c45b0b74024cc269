#include "planner/coordinator/membership/copy_setbacks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace hotbed {
namespace {

int64_t WaitNs(uint32_t lost) {
  int64_t wait_ns = CopySetbacks::kLostAgainNs;
  for (uint32_t n = 2; n < lost && wait_ns < CopySetbacks::kLostNsMax; ++n) wait_ns *= 2;
  return lost < 2 ? 0 : std::min(wait_ns, CopySetbacks::kLostNsMax);
}

std::string SecondsText(int64_t ns) { return absl::StrCat((ns + kSecondNs - 1) / kSecondNs, " s"); }

}  // namespace

CopySetbacks::Setback& CopySetbacks::Of(uint64_t shard, ServerId server) {
  std::vector<Setback>& all = of_shard_[shard];
  for (Setback& setback : all) {
    if (setback.server == server) return setback;
  }
  all.push_back({.server = server});
  return all.back();
}

void CopySetbacks::NoteUnreached(uint64_t shard, ServerId server, int64_t now_ns) {
  Setback& setback = Of(shard, server);
  setback.unreached = true;
  setback.until_ns = std::max(setback.until_ns, now_ns + kUnreachedNs);
}

std::string CopySetbacks::NoteLost(uint64_t shard, ServerId server, int64_t now_ns) {
  Setback& setback = Of(shard, server);
  if (now_ns - setback.last_lost_ns >= kForgottenNs + WaitNs(setback.lost)) setback.lost = 0;
  setback.last_lost_ns = now_ns;
  ++setback.lost;
  if (setback.lost < 2) return "";
  const int64_t wait_ns = WaitNs(setback.lost);
  setback.unreached = false;
  setback.until_ns = now_ns + wait_ns;
  return absl::StrCat("lost there ", setback.lost, " times in a row, not made there again for ",
                      SecondsText(wait_ns));
}

std::vector<ServerId> CopySetbacks::Avoided(uint64_t shard, int64_t now_ns) const {
  std::vector<ServerId> avoided;
  const auto it = of_shard_.find(shard);
  if (it == of_shard_.end()) return avoided;
  for (const Setback& setback : it->second) {
    if (now_ns < setback.until_ns) avoided.push_back(setback.server);
  }
  return avoided;
}

std::string CopySetbacks::Why(uint64_t shard, ServerId server, int64_t now_ns) const {
  const auto it = of_shard_.find(shard);
  if (it == of_shard_.end()) return "";
  for (const Setback& setback : it->second) {
    if (setback.server != server || now_ns >= setback.until_ns) continue;
    const std::string left = SecondsText(setback.until_ns - now_ns);
    if (setback.unreached) {
      return absl::StrCat(
          "it and a primary of the shard do not hear of each other; asked again in ", left);
    }
    return absl::StrCat("its copy was lost ", setback.lost, " times in a row; asked again in ",
                        left);
  }
  return "";
}

}  // namespace hotbed
