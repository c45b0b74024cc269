#include "server/shard/replica/record_tail.h"

#include <algorithm>
#include <utility>

namespace hotbed {
namespace {

// HoldIfSmall: at most this fraction of the budget.
constexpr uint64_t kHoldShare = 4;
// Enough for a snapshot to be installed and for the replica to catch up. A replica that is always
// slower than pushes delays them for this long, and then starts over.
constexpr int64_t kHoldNsMax = 30'000'000'000;

}  // namespace

void RecordTail::Count(int64_t bytes) {
  bytes_ += static_cast<uint64_t>(bytes);
  if (budget_ != nullptr) budget_->tail_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void RecordTail::BeginAbove(Lsn lsn) {
  Clear();
  first_ = lsn + 1;
}

void RecordTail::Add(Epoch epoch, SharedBytes record) {
  Count(static_cast<int64_t>(record.bytes.size()));
  records_.push_back({epoch, std::move(record)});
}

void RecordTail::CutFrom(Lsn lsn) {
  while (!records_.empty() && last() >= lsn) {
    Count(-static_cast<int64_t>(records_.back().bytes.bytes.size()));
    records_.pop_back();
  }
  if (records_.empty() && dropped_bytes_ != 0) Count(-std::exchange(dropped_bytes_, 0));
}

void RecordTail::DropThrough(Lsn lsn) {
  while (!records_.empty() && first_ <= lsn) {
    const SharedBytes dropped = std::move(records_.front().bytes);
    dropped_bytes_ += static_cast<int64_t>(dropped.bytes.size());
    records_.pop_front();
    ++first_;
    // The records of one message from another server share an allocation, which is freed with the
    // last of them.
    const bool more = !records_.empty() && records_.front().bytes.owner == dropped.owner;
    if (!more) Count(-std::exchange(dropped_bytes_, 0));
  }
  if (records_.empty() && first_ <= lsn) first_ = lsn + 1;
}

uint64_t RecordTail::BytesAbove(Lsn lsn) const {
  uint64_t bytes = 0;
  for (Lsn at = last(); at > lsn && at >= first_; --at) bytes += record(at).bytes.size();
  return bytes;
}

void RecordTail::Trim() {
  const uint64_t room = budget_->tail_bytes_max;
  const Lsn committed = std::min(core_->commit_lsn(), core_->applied_lsn());
  DropThrough(std::min(core_->retained_lsn(), core_->applied_lsn()));
  Free(std::min(core_->needed_lsn(), committed), room / 2);
  if (!Held()) Free(committed, room - room / 4);
}

void RecordTail::Free(Lsn limit, uint64_t room) {
  const int64_t excess =
      budget_->tail_bytes.load(std::memory_order_relaxed) - static_cast<int64_t>(room);
  if (excess <= 0 || empty() || first_ > limit) return;
  Lsn lsn = first_;
  int64_t freed = static_cast<int64_t>(record(lsn).bytes.size());
  while (lsn < limit && freed < excess) {
    freed += static_cast<int64_t>(record(++lsn).bytes.size());
  }
  core_->DropRetained(lsn);
  DropThrough(std::min({core_->retained_lsn(), core_->applied_lsn(), lsn}));
}

void RecordTail::Hold(const Member& to) { holds_.push_back({to, clock_->NowNs() + kHoldNsMax}); }

void RecordTail::EndHold(const Member& to) {
  std::erase_if(holds_, [&](const TailHold& hold) { return hold.to == to; });
}

bool RecordTail::HoldIfSmall(const Member& to, Lsn lsn) {
  const bool small = core_->retained_lsn() <= lsn && (Has(lsn + 1) || core_->last_lsn() <= lsn) &&
                     BytesAbove(lsn) <= budget_->tail_bytes_max / kHoldShare;
  if (small) Hold(to);
  return small;
}

bool RecordTail::Held() {
  if (holds_.empty()) return false;
  const int64_t now_ns = clock_->NowNs();
  const std::vector<Member> joined = core_->JoinReady();
  const std::vector<Member>& learners = core_->record().learners;
  std::erase_if(holds_, [&](const TailHold& hold) {
    return now_ns >= hold.until_ns || !core_->primary() || Contains(joined, hold.to) ||
           !Contains(learners, hold.to);
  });
  return !holds_.empty();
}

// A shard that holds its tail for a replica stops earlier: other shards need some room too.
bool RecordTail::full() const {
  if (bytes_ == 0) return false;
  const int64_t room = static_cast<int64_t>(budget_->tail_bytes_max);
  return budget_->tail_bytes.load(std::memory_order_relaxed) >
         (holds_.empty() ? room : room - room / 8);
}

}  // namespace hotbed
