#include "server/host/snapshot_installer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The sender waits meanwhile, so this stays below its patience (kAnswerNsMax, snapshot_sender.cc).
constexpr int64_t kWarmNsMax = 5 * kSecondNs;

absl::Status NoTransfer() { return absl::NotFoundError("no snapshot transfer of it is in flight"); }

}  // namespace

bool SnapshotInstaller::Wants(ShardId shard, const Member& from, Epoch epoch) const {
  const ShardDirectory::Map& map = wiring_.directory->Current();
  const auto it = map.find(shard);
  if (it == map.end()) return false;
  const ShardRecord& record = it->second.record;
  return record.epoch == epoch && record.primary == from && record.Holds(wiring_.data->self());
}

absl::Status SnapshotInstaller::Begin(ShardId id, const Member& from, Epoch epoch, Lsn lsn) {
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<Shard> shard,
                          wiring_.assignments->BeginInstall(id, from, epoch, lsn));
  shard->Close();
  auto rows = EmptyAndReceive(shard, lsn);
  if (!rows.ok()) {
    // Its rows may still be in use.
    wiring_.assignments->GiveUpInstall(std::move(shard));
    return absl::UnavailableError(
        absl::StrCat("it cannot be emptied yet: ", rows.status().message()));
  }
  if (shard->logged()) wiring_.log->ForgetShard(id);
  arriving_[id] = {std::move(shard), *std::move(rows)};
  return absl::OkStatus();
}

absl::Status SnapshotInstaller::Empty(const std::shared_ptr<Shard>& shard) {
  HOTBED_RETURN_IF_ERROR(AwaitIdle({shard}, wiring_.clock));
  shard->ReleaseStore();
  return wiring_.tiers->DeleteShard(shard->spilled());
}

absl::StatusOr<std::unique_ptr<ShardRowWriter>> SnapshotInstaller::EmptyShard(
    const std::shared_ptr<Shard>& shard) {
  HOTBED_RETURN_IF_ERROR(Empty(shard));
  return wiring_.tiers->WriteShard(shard->spilled());
}

absl::StatusOr<std::unique_ptr<ShardRowWriter>> SnapshotInstaller::EmptyAndReceive(
    const std::shared_ptr<Shard>& shard, Lsn lsn) {
  HOTBED_RETURN_IF_ERROR(Empty(shard));
  return wiring_.tiers->ReceiveShard(shard->table(), shard->range(), shard->id(), lsn);
}

absl::Status SnapshotInstaller::Write(ShardId id, absl::string_view block) {
  const auto it = arriving_.find(id);
  return it == arriving_.end() ? NoTransfer() : it->second.rows->Write(block);
}

absl::Status SnapshotInstaller::Finish(ShardId id, absl::string_view meta) {
  const auto it = arriving_.find(id);
  if (it == arriving_.end()) return NoTransfer();
  if (const auto parsed = ShardMeta::Parse(meta); !parsed.ok()) return parsed.status();
  HOTBED_RETURN_IF_ERROR(it->second.rows->Finish(meta));
  HOTBED_RETURN_IF_ERROR(OpenFilled(id, it->second.shard->range(), kWarmNsMax));
  // The server that sent them may have had them in a checkpoint.
  if (!it->second.shard->logged()) wiring_.checkpoints->KeepSoon(id);
  arriving_.erase(it);
  return absl::OkStatus();
}

absl::Status SnapshotInstaller::OpenFilled(ShardId id, const ShardRange& range,
                                           int64_t warm_ns_max) {
  // The rows are durable already; the marks must know of them before the catalog does.
  HOTBED_RETURN_IF_ERROR(wiring_.tiers->Flush());
  HOTBED_ASSIGN_OR_RETURN(const LogPosition log_from, wiring_.log->End());
  HOTBED_RETURN_IF_ERROR(OpenInstalled(id, range, log_from, warm_ns_max));
  return wiring_.promises->KeepAll();
}

// Until FinishInstall the catalog and the assignments mark the shard as installing, so that nothing
// else touches it.
absl::Status SnapshotInstaller::OpenInstalled(ShardId id, const ShardRange& range,
                                              const LogPosition& log_from, int64_t warm_ns_max) {
  HOTBED_ASSIGN_OR_RETURN(const TableSpec table, wiring_.assignments->TableToInstall(id));
  const std::shared_ptr<Shard> shard = wiring_.factory->Make(table, id, range, /*installed=*/true);
  shard->Warm(warm_ns_max);
  shard->FinishReplay();
  shard->SetDurable(shard->applied_lsn());
  const absl::Status published = wiring_.assignments->FinishInstall(id, shard, log_from);
  if (published.ok()) return published;
  shard->Close();
  HOTBED_RETURN_IF_ERROR(AwaitIdle({shard}, wiring_.clock));
  shard->ReleaseStore();
  return published;
}

void SnapshotInstaller::Abandon(ShardId id) {
  const auto it = arriving_.find(id);
  if (it == arriving_.end()) return;
  const std::shared_ptr<Shard> shard = std::move(it->second.shard);
  arriving_.erase(it);
  wiring_.assignments->GiveUpInstall(shard);
}

}  // namespace hotbed
