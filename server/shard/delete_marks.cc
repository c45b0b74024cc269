#include "server/shard/delete_marks.h"

#include <algorithm>

namespace hotbed {
namespace {

// Moments are remembered when so much time has passed, or so many marks came, of what the rule
// allows.
constexpr int64_t kMomentParts = 16;

}  // namespace

void DeleteMarks::Restore(const ShardMeta& meta) {
  SetGone(meta.marks_gone);
  swept_ = meta.marks_gone;
  before_.store(static_cast<int64_t>(meta.marks), std::memory_order_relaxed);
}

void DeleteMarks::Save(uint64_t deleted, ShardMeta* meta) const {
  meta->marks = Count(deleted);
  meta->marks_gone = gone_through();
}

uint64_t DeleteMarks::Count(uint64_t deleted) const {
  const int64_t count = before_.load(std::memory_order_relaxed) + static_cast<int64_t>(deleted);
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

std::shared_ptr<const void> DeleteMarks::Hold() {
  holders_.fetch_add(1, std::memory_order_acq_rel);
  return {nullptr, [this](const void*) { holders_.fetch_sub(1, std::memory_order_acq_rel); }};
}

Lsn DeleteMarks::Due(const Rule& rule, const Moment& moment) {
  const uint64_t count = Count(moment.deleted);
  if (count == 0) {
    past_.clear();
    return 0;
  }
  const uint64_t many = std::max<uint64_t>(rule.count_max / kMomentParts, 1);
  if (past_.empty() || (moment.applied > past_.back().applied &&
                        (moment.now_ns - past_.back().now_ns >= rule.keep_ns / kMomentParts ||
                         moment.deleted - past_.back().deleted >= many))) {
    past_.push_back(moment);
  }
  Lsn through = gone_through() > swept_ ? gone_through() : 0;  // a sweep was broken off
  if (moment.now_ns - past_.front().now_ns >= 2 * rule.keep_ns) {
    for (const Moment& past : past_) {
      if (moment.now_ns - past.now_ns >= rule.keep_ns) through = std::max(through, past.applied);
    }
  }
  if (count > rule.count_max) {
    const auto half = std::find_if(past_.begin(), past_.end(), [&](const Moment& past) {
      return moment.deleted - past.deleted <= rule.count_max / 2;
    });
    through = std::max(through, half == past_.end() ? moment.applied : half->applied);
  }
  return through > swept_ ? through : 0;
}

void DeleteMarks::SetLeft(uint64_t left, uint64_t deleted) {
  swept_ = gone_through();
  before_.store(static_cast<int64_t>(left) - static_cast<int64_t>(deleted),
                std::memory_order_relaxed);
  std::erase_if(past_, [this](const Moment& past) { return past.applied <= swept_; });
}

}  // namespace hotbed
