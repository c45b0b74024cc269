// The shard host's part in a copy that comes in: the shard goes out of service, its rows are
// replaced, and it opens as after a crash (copy_receiver.h).
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"

namespace hotbed {
namespace {

// The sender waits for as long, and less than its patience (copy_sender.cc, kAnswerNsMax).
constexpr int64_t kWarmNsMax = 5'000'000'000;

}  // namespace

bool ShardHostImpl::Wants(ShardId shard, const Member& from, Epoch epoch) const {
  const Member self = Self();
  const ShardMap& map = Map();
  const auto it = map.find(shard);
  if (it == map.end()) return false;
  const ShardRecord& record = it->second.record;
  return record.epoch == epoch && record.primary == from && record.Holds(self);
}

absl::Status ShardHostImpl::Begin(ShardId id, const Member& from, Epoch epoch, Lsn lsn) {
  std::shared_ptr<Shard> shard;
  {
    absl::MutexLock control(&control_mu_);
    ShardMap map = Map();
    const auto it = map.find(id);
    if (shut_down_ || it == map.end() || it->second.shard == nullptr) {
      return absl::FailedPreconditionError("the shard is not open here");
    }
    shard = it->second.shard;
    if (!shard->MayInstall(from, epoch, lsn)) {
      return absl::FailedPreconditionError(
          absl::StrCat("what is here (epoch ", shard->epoch(), ", LSN ", shard->applied_lsn(),
                       ") must not be replaced by LSN ", lsn, " of epoch ", epoch));
    }
    Catalog changed = catalog_;
    changed.installing.insert(id);
    HOTBED_RETURN_IF_ERROR(SaveCatalog(std::move(changed)));
    it->second.shard = nullptr;
    Publish(std::move(map));
  }
  shard->Close();
  absl::Status wiped = AwaitIdle({shard});
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> rows = absl::UnavailableError("not emptied");
  if (wiped.ok()) {
    shard->ReleaseStore();
    wiped = tiers_->DeleteShard(shard->table(), shard->range(), id);
  }
  if (wiped.ok()) {
    rows = tiers_->WriteShard(shard->table(), shard->range(), id);
    wiped = rows.status();
  }
  absl::MutexLock control(&control_mu_);
  if (!wiped.ok()) {
    // Its rows may be used still. It is emptied when they are not, and opened anew.
    dropping_.push_back(shard);
    missing_.insert(id);
    return absl::UnavailableError(absl::StrCat("it cannot be emptied yet: ", wiped.message()));
  }
  if (shard->logged()) log_->ForgetShard(id);
  arriving_[id] = {shard->table(), shard->range(), *std::move(rows)};
  return absl::OkStatus();
}

absl::Status ShardHostImpl::Write(ShardId id, absl::string_view block) {
  HOTBED_ASSIGN_OR_RETURN(const Arriving arriving, ArrivingOf(id));
  return arriving.rows->Write(block);
}

absl::StatusOr<ShardHostImpl::Arriving> ShardHostImpl::ArrivingOf(ShardId id) const {
  absl::MutexLock control(&control_mu_);
  const auto it = arriving_.find(id);
  if (it == arriving_.end()) return absl::NotFoundError("no copy of it is under way");
  return it->second;
}

absl::Status ShardHostImpl::Finish(ShardId id, absl::string_view meta) {
  HOTBED_ASSIGN_OR_RETURN(const Arriving arriving, ArrivingOf(id));
  if (const auto parsed = ShardMeta::Parse(meta); !parsed.ok()) return parsed.status();
  HOTBED_RETURN_IF_ERROR(arriving.rows->Finish(meta));
  HOTBED_ASSIGN_OR_RETURN(const LogPosition log_from, log_->End());
  HOTBED_RETURN_IF_ERROR(OpenInstalled(id, arriving, log_from));
  HOTBED_RETURN_IF_ERROR(KeepPromises());
  return absl::OkStatus();
}

// Until the shard is in the map, the catalog and arriving_ say that its copy is on its way, so
// nobody else touches it.
absl::Status ShardHostImpl::OpenInstalled(ShardId id, const Arriving& arriving,
                                          const LogPosition& log_from) {
  std::shared_ptr<Shard> shard;
  {
    absl::MutexLock control(&control_mu_);
    HOTBED_RETURN_IF_ERROR(CheckArriving(id));
    shard = MakeShard(tables_.at(id.table), id, arriving.range, /*installed=*/true);
  }
  shard->Warm(kWarmNsMax);
  shard->FinishReplay();
  shard->SetDurable(shard->applied_lsn());
  const absl::Status published = PublishInstalled(id, shard, log_from);
  if (published.ok()) return published;
  shard->Close();
  HOTBED_RETURN_IF_ERROR(AwaitIdle({shard}));
  shard->ReleaseStore();
  return published;
}

absl::Status ShardHostImpl::CheckArriving(ShardId id) const {
  const ShardMap& map = Map();
  const auto it = map.find(id);
  if (shut_down_ || it == map.end() || it->second.shard != nullptr) {
    return absl::FailedPreconditionError("the shard is not wanted here any more");
  }
  return absl::OkStatus();
}

absl::Status ShardHostImpl::PublishInstalled(ShardId id, const std::shared_ptr<Shard>& shard,
                                             const LogPosition& log_from) {
  absl::MutexLock control(&control_mu_);
  HOTBED_RETURN_IF_ERROR(CheckArriving(id));
  shard->LearnChanges(tables_.at(id.table).changes);  // told meanwhile to those in the map
  Catalog changed = catalog_;
  changed.installing.erase(id);
  changed.log_from[id] = log_from;
  HOTBED_RETURN_IF_ERROR(SaveCatalog(std::move(changed)));
  arriving_.erase(id);
  ShardMap map = Map();
  Entry& entry = map[id];
  entry.shard = shard;
  const ShardRecord record = entry.record;
  Publish(std::move(map));
  TellShards({{shard, record}});
  return absl::OkStatus();
}

void ShardHostImpl::Abandon(ShardId id) {
  const absl::StatusOr<Arriving> arriving = ArrivingOf(id);
  if (!arriving.ok()) return;
  absl::Status wiped = tiers_->DeleteShard(arriving->table, arriving->range, id);
  if (wiped.ok()) wiped = tiers_->Flush();
  absl::MutexLock control(&control_mu_);
  arriving_.erase(id);
  if (wiped.ok()) {
    Catalog changed = catalog_;
    changed.installing.erase(id);
    changed.shards.erase(id);
    changed.log_from.erase(id);
    ForgetDroppedTables(&changed);
    wiped = SaveCatalog(std::move(changed));
  }
  missing_.insert(id);
  AddMissing();
  // The catalog still says that it is not whole: the next start deletes it.
  if (!wiped.ok())
    HOTBED_LOG(Warning) << "cannot delete what came of " << id.ToString() << ": " << wiped;
}

}  // namespace hotbed
