// What the shard host does about a spill tier of which a file is damaged.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

// Primaries are given up so much later than backups: should another server's tier be damaged too,
// it has given up its backups by then, and what is left here is the only copy.
constexpr int64_t kPrimariesLaterNs = 5'000'000'000;

}  // namespace

void ShardHostImpl::RenewWhereDamaged(const TierHost::Usage& usage, int64_t now_ns) {
  if (!usage.damaged) {
    damaged_since_ns_ = 0;
    return;
  }
  if (damaged_since_ns_ == 0) {
    damaged_since_ns_ = now_ns;
    HOTBED_LOG(Error) << "the spill tier is damaged and takes no more rows: "
                      << usage.background_error << "; copies that other servers have too are "
                      << "given up, then it begins anew";
  }
  const std::string alone = GiveUpCopies(now_ns);
  {
    absl::MutexLock lock(&trouble_mu_);
    tier_trouble_ = alone;
  }
  if (!alone.empty()) HOTBED_LOG_EVERY_S(Error, 30) << "the spill tier is damaged: " << alone;
  if (const absl::Status renewed = BeginTierAnew(); !renewed.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "the damaged spill tier cannot begin anew yet: " << renewed;
  }
}

std::string ShardHostImpl::GiveUpCopies(int64_t now_ns) {
  const Member self = Self();
  const bool primaries_too = now_ns - damaged_since_ns_ >= kPrimariesLaterNs;
  const std::shared_ptr<const ShardMap> map = HeldMap();
  std::string first;
  size_t alone = 0;
  bool given_up = false;
  for (const auto& [id, entry] : *map) {
    const ShardRecord& record = entry.record;
    const bool learns = ContainsServer(record.learners, self.server);
    if (entry.shard == nullptr || (!learns && !ContainsServer(record.members, self.server)))
      continue;
    if (!learns && record.members.size() == 1) {
      if (alone++ == 0) {
        first = absl::StrCat("shard ", id.index, " of table ", entry.shard->table().name);
      }
      continue;
    }
    if (entry.shard->refused() || !record.active) continue;
    if (record.primary == self && !primaries_too) continue;
    entry.shard->Refuse(absl::DataLossError(
        "the spill tier of its server is damaged; a copy elsewhere takes its place"));
    given_up = true;
  }
  if (given_up) HasNews();
  if (alone == 0) return "";
  return absl::StrCat(first, alone == 1 ? "" : absl::StrCat(" and ", alone - 1, " others"),
                      " have no copy on another server, so nothing is deleted; export what can "
                      "still be read, then drop the tables and load them anew");
}

// Whoever takes over a shard asks the servers that its record names, in any life. A learner may be
// counted on until it is taken out of its epoch (Shard::CopyLost).
bool ShardHostImpl::NothingDependsOnTier() const {
  const ServerId self = identity().server;
  const Member member = Self();
  const ShardMap& map = Map();
  if (!arriving_.empty()) return false;
  for (const auto& [id, range] : catalog_.shards) {
    const auto is_it = [held = id](const auto& shard) { return shard->id() == held; };
    const bool dropping = std::any_of(dropping_.begin(), dropping_.end(), is_it);
    const auto it = map.find(id);
    if (dropping || it == map.end()) continue;  // dropped, or known to no coordinator any more
    const ShardRecord& record = it->second.record;
    if (!record.active || ContainsServer(record.members, self)) return false;
    const std::shared_ptr<Shard>& shard = it->second.shard;
    if (shard != nullptr && ContainsServer(record.learners, self) &&
        (!shard->refused() || shard->CopyLost(record, member))) {
      return false;
    }
  }
  return true;
}

// The catalog says first that nothing here is whole: a kill in between must not leave a shard that
// seems to be there, without rows.
absl::Status ShardHostImpl::BeginTierAnew() {
  std::vector<std::shared_ptr<Shard>> closed;
  {
    absl::MutexLock control(&control_mu_);
    if (shut_down_ || !NothingDependsOnTier()) return absl::OkStatus();
    Catalog changed = catalog_;
    for (const auto& [id, range] : catalog_.shards) changed.installing.insert(id);
    HOTBED_RETURN_IF_ERROR(SaveCatalog(std::move(changed)));
    ShardMap map = Map();
    for (auto& [id, entry] : map) {
      if (ContainsServer(entry.record.learners, identity().server)) missing_.insert(id);
      if (entry.shard == nullptr) continue;
      entry.shard->Close();
      left_ns_.erase(id);
      dropping_.push_back(std::exchange(entry.shard, nullptr));
    }
    Publish(std::move(map));
    closed = dropping_;
  }
  HOTBED_RETURN_IF_ERROR(AwaitIdle(closed));
  for (const auto& shard : closed) shard->ReleaseStore();
  HOTBED_RETURN_IF_ERROR(tiers_->Renew());
  spill_renewals_.fetch_add(1, std::memory_order_relaxed);
  HOTBED_LOG(Warning) << "the spill tier was damaged and has begun anew; copies come from others";
  absl::MutexLock control(&control_mu_);
  HOTBED_RETURN_IF_ERROR(ForgetRows(closed));
  AddMissing();
  return absl::OkStatus();
}

absl::Status ShardHostImpl::ForgetRows(const std::vector<std::shared_ptr<Shard>>& closed) {
  Catalog changed = catalog_;
  for (const ShardId id : catalog_.installing) {
    changed.shards.erase(id);
    changed.log_from.erase(id);
    swept_ns_.erase(id);
  }
  changed.installing.clear();
  for (const auto& shard : closed) {
    if (shard->logged()) log_->ForgetShard(shard->id());
    std::erase(dropping_, shard);
  }
  ForgetDroppedTables(&changed);
  return SaveCatalog(std::move(changed));
}

}  // namespace hotbed
