#include "server/host/tier_renewal.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// If another server's tier is damaged too, it has given up its backups by the time this server
// gives up its primaries; those that have become the only replica are then known as such.
constexpr int64_t kPrimariesLaterNs = 5 * kSecondNs;

}  // namespace

void TierRenewal::RenewWhereDamaged(const TierHost::Health& health, int64_t now_ns) {
  if (!health.damaged) {
    damaged_since_ns_ = 0;
    return;
  }
  if (damaged_since_ns_ == 0) {
    damaged_since_ns_ = now_ns;
    HOTBED_LOG(Error) << "the spill tier is damaged and takes no more rows: "
                      << health.background_error << "; replicas that other servers hold too are "
                      << "given up, then it starts empty";
  }
  const std::string trouble = GiveUpReplicas(now_ns);
  {
    absl::MutexLock lock(&mu_);
    trouble_ = trouble;
  }
  if (!trouble.empty()) HOTBED_LOG_EVERY_S(Error, 30) << "the spill tier is damaged: " << trouble;
  if (const absl::Status renewed = Renew(); !renewed.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "the damaged spill tier cannot be renewed yet: " << renewed;
  }
}

std::string TierRenewal::trouble() const {
  absl::MutexLock lock(&mu_);
  return trouble_;
}

// Names the shards that have their only replica here, for people; empty: there are none.
std::string TierRenewal::GiveUpReplicas(int64_t now_ns) {
  const Member self = wiring_.data->self();
  const bool primaries_too = now_ns - damaged_since_ns_ >= kPrimariesLaterNs;
  const auto map = wiring_.directory->Hold();
  std::string first;
  size_t alone = 0;
  bool given_up = false;
  for (const auto& [id, entry] : *map) {
    const ShardRecord& record = entry.record;
    const bool learns = ContainsServer(record.learners, self.server);
    if (entry.shard == nullptr || !record.Names(self.server)) continue;
    if (!learns && record.members.size() == 1) {
      if (alone++ == 0) {
        first = absl::StrCat("shard ", id.index, " of table ", entry.shard->table().name);
      }
      continue;
    }
    if (entry.shard->refused() || !record.active) continue;
    if (record.primary == self && !primaries_too) continue;
    entry.shard->Refuse(absl::DataLossError(
        "the spill tier of its server is damaged; a replica elsewhere takes its place"));
    given_up = true;
  }
  if (given_up) wiring_.has_news();
  if (alone == 0) return "";
  return absl::StrCat(first, alone == 1 ? "" : absl::StrCat(" and ", alone - 1, " others"),
                      " have no replica on another server, so nothing is deleted; export what can "
                      "still be read, then drop the tables and load them again");
}

absl::Status TierRenewal::Renew() {
  HOTBED_ASSIGN_OR_RETURN(const std::optional<ShardList> closed,
                          wiring_.assignments->CloseAllUnlessNeeded());
  if (!closed.has_value()) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(AwaitIdle(*closed, wiring_.clock));
  for (const auto& shard : *closed) shard->ReleaseStore();
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->Renew());
  renewals_.fetch_add(1, std::memory_order_relaxed);
  HOTBED_LOG(Warning) << "the spill tier was damaged and is empty now; its shards come from other "
                      << "servers";
  return wiring_.assignments->ForgetAll(*closed);
}

}  // namespace hotbed
