#include "client/pull/row_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/base/attributes.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr size_t kBucketLookahead = 16;  // ids whose bucket is fetched early
constexpr size_t kHeaderLookahead = 8;
constexpr uint64_t kIndexShare = 8;  // of the memory, one part of this many is the index
constexpr int kTagShift = 48;
constexpr uint64_t kPlaceMask = (uint64_t{1} << kTagShift) - 1;

uint64_t TagOf(uint64_t hash) { return hash >> kTagShift; }

int64_t AgeNs(absl::Duration age) {
  return age == absl::InfiniteDuration() ? std::numeric_limits<int64_t>::max()
                                         : absl::ToInt64Nanoseconds(age);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowCache>> RowCache::Create(const ClientOptions& options) {
  if (options.row_cache_bytes == 0) return nullptr;
  HOTBED_ASSIGN_OR_RETURN(HugeBuffer memory, HugeBuffer::Allocate(options.row_cache_bytes /
                                                                  kHugePageBytes * kHugePageBytes));
  return std::unique_ptr<RowCache>(new RowCache(options, std::move(memory)));
}

RowCache::RowCache(const ClientOptions& options, HugeBuffer memory)
    : steps_max_(options.row_cache_steps),
      age_ns_max_(AgeNs(options.row_cache_age)),
      tables_(options.row_cache_tables),
      memory_(std::move(memory)),
      buckets_(reinterpret_cast<Bucket*>(memory_.data())),
      bucket_mask_(std::bit_floor(memory_.size() / kIndexShare / kUnit) - 1),
      ring_(memory_.data() + (bucket_mask_ + 1) * kUnit),
      ring_units_(memory_.size() / kUnit - (bucket_mask_ + 1)),
      head_(ring_units_),
      round_(ring_units_),
      tail_(ring_units_) {}

bool RowCache::Keeps(const TableOptions& table) const {
  if (table.consistency != Consistency::kAsync || table.column_slices > 1) return false;
  return tables_.empty() || std::find(tables_.begin(), tables_.end(), table.name) != tables_.end();
}

void RowCache::NoteStep(uint64_t step) {
  uint64_t known = step_.load();
  while (known < step && !step_.compare_exchange_weak(known, step)) {
  }
}

RowCache::Moment RowCache::MomentAt(int64_t now_ns) const {
  absl::MutexLock lock(&pushes_mu_);
  return {step_.load(), now_ns, open_pushes_.empty() ? last_push_ : *open_pushes_.begin() - 1};
}

uint64_t RowCache::HashOf(TableId table, uint64_t id) {
  return Mix64(id ^ (uint64_t{table} * 0x9e3779b97f4a7c15ull));
}

void RowCache::HashAll(TableId table, absl::Span<const uint64_t> ids,
                       std::vector<uint64_t>* hashes) {
  hashes->resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) (*hashes)[i] = HashOf(table, ids[i]);
}

// Inline, because GCC takes a call that only prefetches for one without an effect.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void RowCache::Prefetch(absl::Span<const uint64_t> hashes,
                                                            size_t i) const {
  if (i + kBucketLookahead < hashes.size()) {
    __builtin_prefetch(BucketOf(hashes[i + kBucketLookahead]));
  }
  if (i + kHeaderLookahead >= hashes.size()) return;
  const uint64_t hash = hashes[i + kHeaderLookahead];
  const Bucket& bucket = *BucketOf(hash);
  for (const uint64_t slot : bucket.slots) {
    if (slot >> kTagShift == TagOf(hash) && Holds(slot & kPlaceMask)) {
      __builtin_prefetch(At(slot & kPlaceMask));
    }
  }
}

uint64_t* RowCache::Find(uint64_t hash, TableId table, uint64_t id) const {
  Bucket* const bucket = BucketOf(hash);
  for (uint64_t& slot : bucket->slots) {
    if (slot >> kTagShift != TagOf(hash) || slot == 0) continue;
    const Place place = slot & kPlaceMask;
    if (!Holds(place)) continue;
    const Header& row = *HeaderAt(place);
    if (row.id == id && row.table == table) return &slot;
  }
  return nullptr;
}

bool RowCache::IsYoung(const Header& row, const Moment& at) const {
  // A step that was never named says nothing about the age.
  const bool steps =
      steps_max_ < 0 || (at.step != 0 && at.step <= row.step + static_cast<uint64_t>(steps_max_));
  return steps && at.ns - row.ns <= age_ns_max_;
}

void RowCache::TakeRows(const TableRoute& route, const Wanted& wanted, TableGroup* group) {
  thread_local std::vector<uint64_t> hashes;
  thread_local std::vector<const uint8_t*> rows;
  thread_local std::vector<uint8_t> flags;
  UniqueIds& ids = group->ids;
  const TableId table = group->table->id();
  const size_t count = ids.unique.size();
  HashAll(table, ids.unique, &hashes);
  rows.clear();
  flags.clear();
  group->split.order.clear();  // for now, of the rows that are found
  size_t left = 0;
  absl::ReaderMutexLock lock(&mu_);
  for (uint32_t u = 0; u < count; ++u) {
    Prefetch(hashes, u);
    const uint64_t* const slot = Find(hashes[u], table, ids.unique[u]);
    if (slot == nullptr) continue;
    const Header& row = *HeaderAt(*slot & kPlaceMask);
    const bool fits = row.wire_type == static_cast<uint8_t>(wanted.wire_type) &&
                      !(wanted.flags && row.exists == kUnknown);
    const bool current =
        row.shard < route.targets.size() && route.targets[row.shard].epoch == row.epoch;
    if (!fits || !current || !IsYoung(row, wanted.at)) continue;
    group->split.order.push_back(u);
    rows.push_back(reinterpret_cast<const uint8_t*>(&row) + kUnit);
    flags.push_back(row.exists);
  }
  hits_ += rows.size();
  misses_ += count - rows.size();
  if (rows.empty()) return;
  PlanPart part;
  part.end = static_cast<uint32_t>(rows.size());
  part.columns = group->table->dim();
  Scatter({.group = group,
           .part = &part,
           .targets = wanted.targets,
           .wire_type = wanted.wire_type,
           .rows = rows.data(),
           .flags = wanted.flags ? flags.data() : nullptr,
           .streaming = wanted.streaming});
  size_t next = 0;
  for (uint32_t u = 0; u < count; ++u) {
    if (next < rows.size() && group->split.order[next] == u) {
      ++next;
      continue;
    }
    ids.unique[left] = ids.unique[u];
    ids.first[left] = ids.first[u];
    ++left;
  }
  ids.unique.resize(left);
  ids.first.resize(left);
}

void RowCache::Remove(uint64_t* slot) {
  HeaderAt(*slot & kPlaceMask)->dead = true;
  *slot = 0;
}

uint64_t* RowCache::SlotFor(Bucket* bucket, const Moment& now) {
  uint64_t* oldest = bucket->slots;
  for (uint64_t& slot : bucket->slots) {
    if (slot == 0 || !Holds(slot & kPlaceMask)) return &slot;
    if ((slot & kPlaceMask) < (*oldest & kPlaceMask)) oldest = &slot;
  }
  evicted_ += IsYoung(*HeaderAt(*oldest & kPlaceMask), now) ? 1 : 0;
  Remove(oldest);
  return oldest;
}

void RowCache::MakeRoom(uint32_t units, const Moment& now) {
  while (tail_ + ring_units_ < head_ + units) {
    const Header& oldest = *HeaderAt(tail_);
    evicted_ += !oldest.dead && IsYoung(oldest, now) ? 1 : 0;
    tail_ += oldest.units;
  }
}

void RowCache::Advance(uint64_t units) {
  head_ += units;
  if (head_ == round_ + ring_units_) round_ = head_;
}

RowCache::Place RowCache::RoomFor(uint32_t units, const Moment& now) {
  const uint64_t to_end = round_ + ring_units_ - head_;
  if (to_end < units) {  // a row does not go over the end of the memory
    MakeRoom(static_cast<uint32_t>(to_end), now);
    *HeaderAt(head_) = {.units = static_cast<uint32_t>(to_end), .dead = true};
    Advance(to_end);
  }
  MakeRoom(units, now);
  const Place place = head_;
  Advance(units);
  return place;
}

void RowCache::KeepRow(const Answered& answered, size_t k, uint64_t hash, bool newest) {
  Bucket* const bucket = BucketOf(hash);
  const uint64_t id = answered.unique[answered.order[k]];
  uint64_t* slot = Find(hash, answered.table->id(), id);
  if (slot != nullptr) {
    const Header& known = *HeaderAt(*slot & kPlaceMask);
    if (std::tuple(known.epoch, known.lsn, known.ns) >
        std::tuple(answered.epoch, answered.lsn, answered.asked.ns)) {
      return;
    }
    // Goes even if nothing takes its place: the caller has seen a later version.
    Remove(slot);
  }
  if (!newest || bucket->fence > answered.asked.pushes_ended) return;
  const uint32_t bytes = RowWireBytes(answered.wire_type, answered.table->dim());
  const uint32_t units = static_cast<uint32_t>(1 + (bytes + kUnit - 1) / kUnit);
  const Place place = RoomFor(units, answered.asked);
  if (slot == nullptr) slot = SlotFor(bucket, answered.asked);
  *HeaderAt(place) = {
      .id = id,
      .epoch = answered.epoch,
      .lsn = answered.lsn,
      .step = answered.asked.step,
      .ns = answered.asked.ns,
      .table = answered.table->id(),
      .shard = answered.shard,
      .units = units,
      .wire_type = static_cast<uint8_t>(answered.wire_type),
      .exists = answered.flags == nullptr ? kUnknown : static_cast<uint8_t>(answered.flags[k] & 1),
      .dead = false};
  std::memcpy(At(place) + kUnit, answered.rows[k], bytes);
  *slot = TagOf(hash) << kTagShift | place;
}

void RowCache::Keep(const Answered& answered) {
  // Not so where a later answer came first, or where a replica that is behind answered a lookup,
  // which names no LSN.
  const bool newest = answered.lsn >= answered.table->LsnMin(answered.shard, answered.epoch);
  thread_local std::vector<uint64_t> hashes;
  hashes.resize(answered.rows.size());
  for (size_t k = 0; k < hashes.size(); ++k) {
    hashes[k] = HashOf(answered.table->id(), answered.unique[answered.order[k]]);
  }
  absl::MutexLock lock(&mu_);
  for (size_t k = 0; k < hashes.size(); ++k) {
    Prefetch(hashes, k);
    KeepRow(answered, k, hashes[k], newest);
  }
}

RowCache::OwnPush RowCache::BeginPush() {
  absl::MutexLock lock(&pushes_mu_);
  open_pushes_.insert(++last_push_);
  return {this, last_push_};
}

void RowCache::EndPush(uint64_t number) {
  absl::MutexLock lock(&pushes_mu_);
  open_pushes_.erase(number);
}

void RowCache::RemoveRows(const OwnPush& push, TableId table, absl::Span<const uint64_t> ids) {
  thread_local std::vector<uint64_t> hashes;
  HashAll(table, ids, &hashes);
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < ids.size(); ++i) {
    Prefetch(hashes, i);
    Bucket* const bucket = BucketOf(hashes[i]);
    bucket->fence = std::max(bucket->fence, push.number_);
    uint64_t* const slot = Find(hashes[i], table, ids[i]);
    if (slot != nullptr) Remove(slot);
  }
}

void RowCache::AddTo(ClientStats* stats) const {
  stats->row_cache_hits = hits_.load();
  stats->row_cache_misses = misses_.load();
  absl::MutexLock lock(&mu_);
  stats->row_cache_evictions = evicted_;
  const uint64_t used = std::min(head_ - ring_units_, ring_units_);
  stats->row_cache_bytes = (bucket_mask_ + 1 + used) * kUnit;
}

}  // namespace hotbed
