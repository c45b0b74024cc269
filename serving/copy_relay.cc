#include "serving/copy_relay.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/metrics.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr int64_t kUnaskedNsMax = 30 * kSecondNs;  // then changes are not kept any more

Counter& RelayedBytes() {
  static auto* const counter = new Counter(
      "hotbed_serving_relayed_bytes_total",
      "Bytes of rows that copies of this serving server sent to other copies, which follow them.");
  return *counter;
}

v1::ReadPlace PlaceOf(const RangePosition& position) {
  v1::ReadPlace place;
  place.mutable_through()->set_epoch(position.epoch);
  place.mutable_through()->set_lsn(position.lsn);
  place.mutable_seen()->set_epoch(position.seen_epoch);
  place.mutable_seen()->set_lsn(position.seen_lsn);
  return place;
}

std::string BytesOf(const std::vector<uint64_t>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint64_t));
}

bool Same(const v1::LogPlace& a, const v1::LogPlace& b) {
  return a.lsn() == b.lsn() && a.epoch() == b.epoch();
}

bool IsLater(const v1::LogPlace& a, const v1::LogPlace& b) {
  return std::pair(a.epoch(), a.lsn()) > std::pair(b.epoch(), b.lsn());
}

// Takes the ids of `from`, and their rows, that are not in `told` yet.
void TakeUntold(const std::string& from, const std::string& rows,
                absl::flat_hash_set<uint64_t>* told, std::string* ids, std::string* out) {
  const size_t count = from.size() / sizeof(uint64_t);
  const size_t row_bytes = count == 0 ? 0 : rows.size() / count;
  for (size_t i = 0; i < count; ++i) {
    uint64_t id;
    std::memcpy(&id, from.data() + i * sizeof(id), sizeof(id));
    if (!told->insert(id).second) continue;
    ids->append(from, i * sizeof(id), sizeof(id));
    if (out != nullptr) out->append(rows, i * row_bytes, row_bytes);
  }
}

}  // namespace

uint64_t RelayMemory::NewRun() {
  absl::MutexLock lock(&mu_);
  return runs_.Next() | 1;  // 0 is none
}

void RelayMemory::Raise() {
  absl::MutexLock lock(&mu_);
  raised_ = true;
}

void RelayMemory::Await(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  AwaitFor(&mu_, absl::Condition(&raised_), timeout);
  raised_ = false;
}

CopyRelay::CopyRelay(RelayMemory* memory, const Clock* clock)
    : memory_(memory), clock_(clock), run_(memory->NewRun()) {
  RelayedBytes();  // exported from now on, not from the first answer
}

CopyRelay::~CopyRelay() {
  absl::MutexLock lock(&mu_);
  Close();
}

void CopyRelay::SetFeeder(const std::string& feeder) {
  absl::MutexLock lock(&mu_);
  feeder_ = feeder;
  if (!feeder.empty()) Close();
}

std::string CopyRelay::feeder() const {
  absl::MutexLock lock(&mu_);
  return feeder_;
}

uint64_t CopyRelay::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

void CopyRelay::Begin(const ChangePositions& positions) {
  absl::MutexLock lock(&mu_);
  for (auto& [key, range] : ranges_) Drop(&range, range.changes.size());
  ranges_.clear();
  for (const RangePosition& position : positions) {
    if (position.lsn == 0) continue;
    Range& range = ranges_[{position.range.first, position.range.limit}];
    range.end = PlaceOf(position);
    range.seen = range.end.seen();
    range.born = next_++;
    range.kept_from = next_;
  }
}

void CopyRelay::Takes(const CopyChanges& changes) {
  absl::MutexLock lock(&mu_);
  const v1::LogPlace seen = PlaceOf(changes.at).seen();
  for (auto& [key, range] : ranges_) {  // parts of a shard and the whole have rows in common
    const bool overlaps = key.first < changes.range.limit && changes.range.first < key.second;
    if (overlaps && IsLater(seen, range.seen)) range.seen = seen;
  }
}

std::optional<CopyRelay::Known> CopyRelay::BeginList(uint64_t first, uint64_t limit) {
  absl::MutexLock lock(&mu_);
  const auto range = ranges_.find({first, limit});
  if (!feeder_.empty() || range == ranges_.end()) return std::nullopt;
  Open();
  return Known{range->second.end.through(), range->second.born};
}

std::optional<v1::LogPlace> CopyRelay::SeenOf(uint64_t first, uint64_t limit, const Known& known) {
  absl::MutexLock lock(&mu_);
  const auto range = ranges_.find({first, limit});
  if (range == ranges_.end() || range->second.born != known.born) return std::nullopt;
  Open();
  return range->second.seen;
}

void CopyRelay::Took(const CopyChanges& changes, absl::Span<const uint8_t> rows) {
  {
    absl::MutexLock lock(&mu_);
    // A shard that was cut or merged has other followers; one whose rows all come (again) is not
    // whole yet.
    const bool begins = changes.again || changes.at.lsn == 0;
    EraseOverlapping(changes.range, begins);
    if (begins) return;
    const auto [at, is_new] =
        ranges_.try_emplace({changes.range.first, changes.range.limit}, Range());
    Range& range = at->second;
    const v1::LogPlace from = std::exchange(range.end, PlaceOf(changes.at)).through();
    const uint64_t number = next_++;
    if (IsLater(range.end.seen(), range.seen)) range.seen = range.end.seen();
    if (is_new) range.born = number;
    // An answer of a feeder may end within an entry of the log and not say so. A primary tells that
    // entry whole behind it, and so its changes are kept from there on.
    if (is_new || !open_ || changes.coded) {
      Drop(&range, range.changes.size());
      range.kept_from = next_;
      range.torn = changes.partial;
      return;
    }
    Change& change = range.changes.emplace_back();
    change.number = number;
    change.from = from;
    change.at = range.end;
    change.partial = changes.partial;
    change.ids = BytesOf(changes.ids);
    change.rows.assign(reinterpret_cast<const char*>(rows.data()), rows.size());
    change.deleted = BytesOf(changes.deleted);
    bytes_ += change.bytes();
    Shrink();
  }
  memory_->Raise();
}

void CopyRelay::EraseOverlapping(const ChangedRange& range, bool same_too) {
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const auto [first, limit] = it->first;
    const bool same = first == range.first && limit == range.limit;
    if (first >= range.limit || range.first >= limit || (same && !same_too)) {
      ++it;
      continue;
    }
    Drop(&it->second, it->second.changes.size());
    it = ranges_.erase(it);
  }
}

void CopyRelay::Drop(Range* range, size_t count) {
  for (; count > 0; --count) {
    const Change& change = range->changes.front();
    range->kept_from = change.number + 1;
    range->torn = change.partial;
    bytes_ -= change.bytes();
    range->changes.pop_front();
  }
}

// The oldest go.
void CopyRelay::Shrink() {
  while (bytes_ > memory_->Share()) {
    Range* oldest = nullptr;
    for (auto& [key, range] : ranges_) {
      if (range.changes.empty()) continue;
      if (oldest == nullptr || range.changes.front().number < oldest->changes.front().number) {
        oldest = &range;
      }
    }
    if (oldest == nullptr) return;
    Drop(oldest, 1);
  }
}

void CopyRelay::Sweep() {
  absl::MutexLock lock(&mu_);
  if (open_ && clock_->NowNs() - asked_ns_ > kUnaskedNsMax) Close();
  Shrink();
}

void CopyRelay::Open() {
  asked_ns_ = clock_->NowNs();
  if (feeder_.empty() && !std::exchange(open_, true)) memory_->AddOpen();
}

void CopyRelay::Close() {
  for (auto& [key, range] : ranges_) Drop(&range, range.changes.size());
  if (std::exchange(open_, false)) memory_->RemoveOpen();
}

CopyRelay::Start CopyRelay::Join(const Range& range, const v1::ReadPlace& above) {
  const v1::LogPlace& through = above.through();
  const v1::LogPlace& end = range.end.through();
  if (through.lsn() >= end.lsn()) {
    // It is ahead, or has all. If it is ahead, entries that it has may be lost by now: the copy
    // knows nothing of that until it is there as well.
    const bool goes_on =
        through.lsn() == end.lsn() ? Same(through, end) : through.epoch() >= end.epoch();
    const bool ahead = through.lsn() > end.lsn() || above.seen().lsn() > range.seen.lsn();
    return {!goes_on ? Start::kBehind : ahead ? Start::kWait : Start::kNothing};
  }
  const std::deque<Change>& changes = range.changes;
  if (changes.empty() || through.lsn() < changes.front().from.lsn()) return {Start::kBehind};
  Start start = {Start::kGoOn};
  while (start.first + 1 < changes.size() && changes[start.first + 1].from.lsn() <= through.lsn()) {
    ++start.first;
  }
  const v1::LogPlace& from = changes[start.first].from;
  size_t behind = start.first;
  while (changes[behind].at.through().lsn() <= through.lsn()) ++behind;
  const bool inside =
      from.epoch() == through.epoch() && changes[behind].at.through().epoch() == through.epoch();
  if (!Same(from, through) && !inside) return {Start::kBehind};
  const v1::LogPlace& seen = above.seen();
  size_t last = behind;
#ifndef HOTBED_PLANTED_EARLY_JOIN
  while (last < changes.size() && changes[last].at.through().lsn() < seen.lsn()) ++last;
#endif
  if (last == changes.size()) return {Start::kWait};
  if (changes[last].at.through().epoch() != seen.epoch()) return {Start::kBehind};
  // A partial one has rows of the entry at which the next one ends.
  while (start.first > 0 && changes[start.first - 1].partial) --start.first;
  if (start.first == 0 && range.torn) return {Start::kBehind};
  start.merged = last + 1 - start.first;
  uint64_t bytes = 0;
  for (size_t i = start.first; i <= last; ++i) bytes += changes[i].bytes();
  return bytes > kMergedBytesMax ? Start{Start::kBehind} : start;
}

CopyRelay::Start CopyRelay::Find(const Range& range, const v1::FollowedShard& asked) const {
  if (asked.cursor().run() != run_ || asked.cursor().next() < range.kept_from) {
    return Join(range, asked.above());
  }
  Start start = {Start::kGoOn};
  const std::deque<Change>& changes = range.changes;
  start.first =
      std::lower_bound(changes.begin(), changes.end(), asked.cursor().next(),
                       [](const Change& change, uint64_t next) { return change.number < next; }) -
      changes.begin();
  return start;
}

uint64_t CopyRelay::Tell(const Range& range, const Start& start, const v1::FollowedShard& asked,
                         uint64_t bytes_max, v1::ReadChangesReply* reply) const {
  uint64_t bytes = 0;
  const auto add = [&](const Change& upto) {
    v1::ShardChanges& said = *reply->add_shards();
    said.set_shard(asked.shard());
    *said.mutable_at() = upto.at;
    said.mutable_cursor()->set_run(run_);
    said.mutable_cursor()->set_next(upto.number + 1);
    return &said;
  };
  size_t next = start.first;
  if (start.merged > 0) {
    next += start.merged;
    v1::ShardChanges* const said = add(range.changes[next - 1]);
    absl::flat_hash_set<uint64_t> told;
    for (size_t i = next; i-- > start.first;) {  // an id is told as of its last change
      const Change& change = range.changes[i];
      TakeUntold(change.ids, change.rows, &told, said->mutable_ids(), said->mutable_rows());
      TakeUntold(change.deleted, "", &told, said->mutable_deleted(), nullptr);
    }
    bytes += said->ids().size() + said->rows().size() + said->deleted().size();
  }
  for (; next < range.changes.size() && bytes < bytes_max; ++next) {
    const Change& change = range.changes[next];
    v1::ShardChanges* const said = add(change);
    said->set_ids(change.ids);
    said->set_rows(change.rows);
    said->set_deleted(change.deleted);
    bytes += change.bytes();
  }
  if (next < range.changes.size()) reply->set_more(true);
  return bytes;
}

uint64_t CopyRelay::Read(const v1::ReadChangesRequest& request, uint64_t bytes_max,
                         bool waits_no_more, v1::ReadChangesReply* reply) {
  uint64_t bytes = 0;
  absl::MutexLock lock(&mu_);
  Open();
  for (const v1::FollowedShard& asked : request.shards()) {
    const auto range = ranges_.find({asked.range_first(), asked.range_limit()});
    if (!feeder_.empty() || range == ranges_.end()) {
      v1::ShardChanges& said = *reply->add_shards();
      said.set_shard(asked.shard());
      said.set_elsewhere(true);
      continue;
    }
    const Start start = Find(range->second, asked);
    const bool behind =
        start.state == Start::kBehind || (start.state == Start::kWait && waits_no_more);
    if (start.state == Start::kWait) reply->set_more(true);  // there are changes that it lacks
    if (behind) {
      v1::ShardChanges& said = *reply->add_shards();
      said.set_shard(asked.shard());
      said.set_behind(true);
    }
    if (start.state != Start::kGoOn || start.first == range->second.changes.size()) continue;
    if (bytes >= bytes_max) {  // at the next call
      reply->set_more(true);
      continue;
    }
    bytes += Tell(range->second, start, asked, bytes_max - bytes, reply);
  }
  RelayedBytes().Add(bytes);
  return bytes;
}

}  // namespace hotbed
