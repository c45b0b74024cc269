#include "server/host/shard_write_back.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kDirtyNsMax = 120 * kSecondNs;  // rows are written back at the latest after this
constexpr int64_t kLookEveryNs = kSecondNs;       // while the log is short
constexpr int64_t kLookNsPerShard = 100'000;      // then also not more often than this per shard
constexpr uint64_t kLogBytesMin = 64ull << 20;    // a log below this is not worth cutting
constexpr uint64_t kLogPerRowByte = 8;            // nor one below this multiple of the rows
constexpr int64_t kRowBytesEveryNs = kSecondNs;   // adding them up takes a microsecond per shard
constexpr size_t kWriteBackBatchMin = 8;          // shards that share a flush
constexpr size_t kWriteBackBatchPart = 8;         // and at least this part of all

}  // namespace

absl::Status ShardWriteBack::WriteBack(const ShardList& shards) {
  absl::Status first_error;
  std::vector<std::pair<Shard*, Lsn>> covered;
  for (const auto& shard : shards) {
    absl::StatusOr<Lsn> lsn = shard->WriteBack();
    if (lsn.ok()) {
      covered.emplace_back(shard.get(), *lsn);
    } else {
      first_error.Update(lsn.status());
    }
  }
  HOTBED_RETURN_IF_ERROR(tiers_->Flush());
  for (const auto& [shard, lsn] : covered) shard->SetDurable(lsn);
  return first_error;
}

void ShardWriteBack::WriteBackDue(int64_t now_ns) {
  const bool crowded = Crowded(NoteLogFull(), now_ns);
  if (!crowded && now_ns < look_ns_) return;
  absl::flat_hash_map<ShardId, int64_t> clean_ns;
  std::vector<std::pair<int64_t, std::shared_ptr<Shard>>> due;
  const auto shards = directory_->Shards();
  const int64_t look_ns_all = kLookNsPerShard * static_cast<int64_t>(shards->size());
  look_ns_ = now_ns + std::max(kLookEveryNs, look_ns_all);
  for (const auto& shard : *shards) {
    const bool clean_rows = shard->applied_lsn() == shard->durable_lsn();
    if (shard->logged()) NoteStuck(*shard, crowded, clean_rows);
    if (clean_rows || !shard->error().empty()) continue;
    const auto known = clean_ns_.find(shard->id());
    const int64_t clean = known == clean_ns_.end() ? now_ns : known->second;
    clean_ns[shard->id()] = clean;
    if ((crowded && shard->logged()) || now_ns - clean >= kDirtyNsMax) {
      due.emplace_back(clean, shard);
    }
  }
  clean_ns_ = std::move(clean_ns);
  absl::erase_if(set_aside_, [this](ShardId id) {
    const bool gone = directory_->Find(id) == nullptr;
    if (gone) log_->SetAside(id, false);
    return gone;
  });
  if (due.empty()) return;
  // The shards written back least recently come first: they hold the oldest segments of the log.
  std::sort(due.begin(), due.end());
  due.resize(std::min(due.size(), std::max(kWriteBackBatchMin, due.size() / kWriteBackBatchPart)));
  ShardList batch;
  for (auto& [clean, shard] : due) {
    clean_ns_[shard->id()] = now_ns;
    batch.push_back(std::move(shard));
  }
  if (const absl::Status written = WriteBack(batch); !written.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 10) << "write-back failed, the log is kept: " << written;
  }
}

// A refused shard keeps its part of the log. So does a shard whose rows are written back, for
// records that are not committed: those of a replica whose primary does without it, for example.
void ShardWriteBack::NoteStuck(const Shard& shard, bool crowded, bool clean_rows) {
  const bool was = set_aside_.contains(shard.id());
  const bool stuck = shard.refused() || (clean_rows && (was || crowded));
  if (stuck == was) return;
  log_->SetAside(shard.id(), stuck);
  if (stuck) {
    set_aside_.insert(shard.id());
  } else {
    set_aside_.erase(shard.id());
  }
}

bool ShardWriteBack::Crowded(uint64_t log_bytes, int64_t now_ns) {
  if (log_bytes > log_bytes_max_ / 2) return true;
  if (log_bytes <= kLogBytesMin) return false;
  if (row_bytes_ns_ == 0 || now_ns - row_bytes_ns_ >= kRowBytesEveryNs) {
    row_bytes_ns_ = now_ns;
    row_bytes_ = 0;
    const auto shards = directory_->Shards();
    for (const auto& shard : *shards) {
      if (shard->logged()) row_bytes_ += shard->Status().bytes;
    }
  }
  return log_bytes > kLogPerRowByte * row_bytes_;
}

absl::Status ShardWriteBack::WriteBackWhereLogIsLost() {
  ShardList lost;
  for (const auto& [id, entry] : directory_->Current()) {
    if (entry.shard != nullptr && entry.shard->wants_write_back()) lost.push_back(entry.shard);
  }
  if (lost.empty()) return absl::OkStatus();
  HOTBED_LOG(Warning) << lost.size() << " shards, " << lost[0]->id().ToString()
                      << " the first, continue above what their rows carry: the end of their log "
                      << "was lost with a power loss, and some updates with it";
  return WriteBack(lost);
}

// Bytes that are kept for shards set aside alone do not count: no write-back can free them.
uint64_t ShardWriteBack::NoteLogFull() {
  const ShardLog::Usage usage = log_->GetUsage();
  const uint64_t bytes = usage.bytes - usage.bytes_aside;
  log_full_.store(bytes > log_bytes_max_, std::memory_order_relaxed);
  return bytes;
}

}  // namespace hotbed
