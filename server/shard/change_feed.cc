#include "server/shard/change_feed.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr size_t kBlockWords = 2048;  // 16 KiB; an entry with more ids has a block of its own
constexpr size_t kRunsMax = 64;       // of epochs, before those that are no longer needed go
constexpr size_t kEntryWords = 2;     // before the ids
// Memory of a block beside its words, and of a feed beside its blocks: a deque's first node.
constexpr uint64_t kBlockBytes = 64;
constexpr uint64_t kFeedBytes = 1024;

uint64_t BytesOf(const std::vector<uint64_t>& words) {
  return words.capacity() * sizeof(uint64_t) + kBlockBytes;
}

}  // namespace

// --- what feeds share

bool ChangeMemory::Take(uint64_t bytes, std::atomic<uint64_t>* of) {
  uint64_t taken = of->load();
  do {
    if (taken + bytes > bytes_max_ / 2) return false;
  } while (!of->compare_exchange_weak(taken, taken + bytes));
  return true;
}

void ChangeMemory::SetRaised() {
  absl::MutexLock lock(&mu_);
  raised_ = true;
}

void ChangeMemory::Await(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  AwaitFor(&mu_, absl::Condition(&raised_), timeout);
  raised_ = false;
}

// --- one feed

void ChangeFeed::Open(const ChangePosition& applied, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (memory_ == nullptr || state_ != nullptr || !memory_->TakeForFeed(kFeedBytes)) return;
  memory_->AddFeed();
  state_ = std::make_unique<State>();
  state_->from = state_->through = applied;
  state_->runs.Reset(applied.lsn, applied.epoch);
  state_->read_ns = now_ns;
  open_.store(true, std::memory_order_relaxed);
}

void ChangeFeed::Applied(const ChangePosition& at, absl::Span<const uint64_t> ids) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == nullptr) return;
    State& state = *state_;
    state.through = at;
    state.runs.Append(at.lsn, at.epoch);
    if (!ids.empty() && MakeRoom(kEntryWords + ids.size())) {
      Block& block = state.blocks.back();
      block.last = at.lsn;
      block.words.push_back(at.lsn);
      block.words.push_back(ids.size());
      block.words.insert(block.words.end(), ids.begin(), ids.end());
    } else if (!ids.empty()) {
      state.from = at;  // no block is left
    }
    if (state.runs.size() > kRunsMax) state.runs.ForgetBelow(state.from.lsn);
  }
  memory_->Raise();
}

bool ChangeFeed::MakeRoom(size_t words) {
  std::deque<Block>& blocks = state_->blocks;
  if (!blocks.empty()) {
    const std::vector<uint64_t>& last = blocks.back().words;
    if (last.capacity() - last.size() >= words) return true;
  }
  Block block;
  block.words.reserve(std::max(words, kBlockWords));
  const uint64_t share = memory_->FeedShare();  // read once: other feeds open and close meanwhile
  ShrinkTo(share - std::min(share, BytesOf(block.words)));
  while (!memory_->TakeForFeed(BytesOf(block.words))) {
    if (blocks.empty()) return false;
    DropOldest();
  }
  state_->bytes += BytesOf(block.words);
  blocks.push_back(std::move(block));
  return true;
}

void ChangeFeed::ShrinkTo(uint64_t bytes) {
  while (state_->bytes > bytes && !state_->blocks.empty()) DropOldest();
}

void ChangeFeed::DropOldest() {
  const Block& oldest = state_->blocks.front();
  state_->from = {state_->runs.At(oldest.last), oldest.last};
  state_->bytes -= BytesOf(oldest.words);
  memory_->GiveFromFeed(BytesOf(oldest.words));
  state_->blocks.pop_front();
}

ChangeFeed::Changes ChangeFeed::Read(const ReadPosition& from, size_t skip, size_t ids_max,
                                     int64_t now_ns) {
  Changes changes = Copy(from, skip, std::max<size_t>(ids_max, 1), now_ns);
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

bool ChangeFeed::Knows(const ChangePosition& place) const {
  return place.lsn <= state_->through.lsn && state_->runs.At(place.lsn) == place.epoch;
}

ChangeFeed::Changes ChangeFeed::Copy(const ReadPosition& position, size_t skip, size_t ids_max,
                                     int64_t now_ns) {
  Changes changes;
  absl::MutexLock lock(&mu_);
  if (state_ == nullptr) return changes;
  State& state = *state_;
  state.read_ns = now_ns;
  const ChangePosition& from = position.through;
  if (from.lsn < state.from.lsn || !Knows(from) || !Knows(position.seen)) return changes;
  changes.known = true;
  changes.through = state.through;
  const auto first = std::upper_bound(state.blocks.begin(), state.blocks.end(), from.lsn,
                                      [](Lsn lsn, const Block& block) { return lsn < block.last; });
  for (auto block = first; block != state.blocks.end(); ++block) {
    const std::vector<uint64_t>& words = block->words;
    for (size_t at = 0; at < words.size(); at += kEntryWords + words[at + 1]) {
      const Lsn lsn = words[at];
      if (lsn <= from.lsn) continue;
      const size_t count = words[at + 1];
      const size_t begin = std::min(std::exchange(skip, 0), count);
      const size_t room = ids_max - changes.ids.size();
      const bool whole = count - begin <= room;
      if (!whole && !changes.ids.empty()) {
        changes.through = {state.runs.At(lsn - 1), lsn - 1};
        return changes;
      }
      const size_t limit = whole ? count : begin + room;
      const uint64_t* const ids = words.data() + at + kEntryWords;
      changes.ids.insert(changes.ids.end(), ids + begin, ids + limit);
      if (whole) continue;
      changes.through = from;
      changes.skip = limit;
      return changes;
    }
  }
  return changes;
}

void ChangeFeed::Touch(int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (state_ != nullptr) state_->read_ns = now_ns;
}

bool ChangeFeed::Sweep(int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (state_ == nullptr) return true;
  if (now_ns - state_->read_ns < kFeedIdleNs) {
    ShrinkTo(memory_->FeedShare());
    return false;
  }
  CloseLocked();
  return true;
}

void ChangeFeed::Close() {
  absl::MutexLock lock(&mu_);
  if (state_ != nullptr) CloseLocked();
}

void ChangeFeed::CloseLocked() {
  open_.store(false, std::memory_order_relaxed);
  while (!state_->blocks.empty()) DropOldest();
  state_.reset();
  memory_->RemoveFeed();
  memory_->GiveFromFeed(kFeedBytes);
}

}  // namespace hotbed
