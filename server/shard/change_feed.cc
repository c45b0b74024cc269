#include "server/shard/change_feed.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace hotbed {

void ChangeFeed::Applied(Lsn lsn, absl::Span<const uint64_t> ids, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (now_ns - read_ns_ >= kFeedIdleNs) {
    open_.store(false, std::memory_order_relaxed);
    entries_.clear();
    ids_ = 0;
    return;
  }
  through_ = lsn;
  if (ids.empty()) return;
  entries_.push_back({lsn, {ids.begin(), ids.end()}});
  ids_ += ids.size();
  while (ids_ > kFeedIdsMax) {
    from_ = entries_.front().lsn;
    ids_ -= entries_.front().ids.size();
    entries_.pop_front();
  }
}

void ChangeFeed::Open(Lsn applied, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (open_.load(std::memory_order_relaxed)) return;
  from_ = through_ = applied;
  read_ns_ = now_ns;
  open_.store(true, std::memory_order_relaxed);
}

ChangeFeed::Changes ChangeFeed::Read(Lsn from, size_t ids_max, int64_t now_ns) {
  Changes changes = Copy(from, ids_max, now_ns);
  // Each once, by its last change. Without the lock, so that no push waits for it.
  absl::flat_hash_set<uint64_t> seen;
  seen.reserve(changes.ids.size());
  size_t kept = changes.ids.size();
  for (size_t i = changes.ids.size(); i-- > 0;) {
    if (seen.insert(changes.ids[i]).second) changes.ids[--kept] = changes.ids[i];
  }
  changes.ids.erase(changes.ids.begin(), changes.ids.begin() + static_cast<ptrdiff_t>(kept));
  return changes;
}

ChangeFeed::Changes ChangeFeed::Copy(Lsn from, size_t ids_max, int64_t now_ns) {
  Changes changes;
  absl::MutexLock lock(&mu_);
  changes.open = open();
  if (!changes.open) return changes;
  read_ns_ = now_ns;
  changes.from = from_;
  changes.through = through_;
  if (from < from_) return changes;
  const auto first = std::upper_bound(entries_.begin(), entries_.end(), from,
                                      [](Lsn lsn, const Entry& entry) { return lsn < entry.lsn; });
  for (auto entry = first; entry != entries_.end(); ++entry) {
    if (changes.ids.size() >= std::max<size_t>(ids_max, 1)) {
      changes.through = std::prev(entry)->lsn;
      break;
    }
    changes.ids.insert(changes.ids.end(), entry->ids.begin(), entry->ids.end());
  }
  return changes;
}

}  // namespace hotbed
