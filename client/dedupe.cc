#include "client/dedupe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr size_t kLookahead = 16;                     // ids whose slot is fetched early
constexpr uint64_t kSlotsKept = 1ull << 20;           // 8 MiB; larger tables are given back
constexpr uint64_t kSlotsAtFirstMax = 1ull << 17;     // 1 MiB: stays in the second-level cache
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

uint64_t HashOf(uint64_t id) {
  const uint64_t h = id * kMultiplier;
  return h ^ (h >> 32);
}

}  // namespace

void Deduper::Reserve(uint64_t slots, uint64_t inputs, UniqueIds* out) {
  used_ = slots;
  if (used_ > capacity_ || (capacity_ > kSlotsKept && used_ <= kSlotsKept)) {
    slots_.reset(new Slot[used_]);
    capacity_ = used_;
  }
  std::memset(slots_.get(), 0xff, used_ * sizeof(Slot));
  // No more than there are inputs: what grows again is filled with zeros each time.
  const uint64_t room = std::min(used_ / 2, inputs);
  out->unique.resize(room);
  out->first.resize(room);
  if (last_.size() < room) last_.resize(room);
}

void Deduper::Grow(uint32_t count, uint64_t inputs, UniqueIds* out) {
  Reserve(used_ * 4, inputs, out);
  const uint64_t mask = used_ - 1;
  for (uint32_t u = 0; u < count; ++u) {
    const uint64_t hash = HashOf(out->unique[u]);
    uint64_t s = hash & mask;
    while (slots_[s].index != kNoIndex) s = (s + 1) & mask;
    slots_[s] = {u, static_cast<uint32_t>(hash >> 32)};
  }
}

void Deduper::Run(absl::Span<const absl::Span<const uint64_t>> parts, UniqueIds* out) {
  uint64_t inputs = 0;
  for (const auto& part : parts) inputs += part.size();
  HOTBED_CHECK(inputs <= kIdsPerCallMax) << inputs << " ids in one call";
  Reserve(std::min(kSlotsAtFirstMax, std::bit_ceil(inputs * 2 + 16)), inputs, out);
  out->next.resize(inputs);
  uint32_t count = 0;
  uint32_t input = 0;
  for (const auto& part : parts) {
    size_t done = 0;
    while (done < part.size()) {
      // A run may fill the room for unique ids, not overflow it.
      const size_t n = std::min<size_t>(part.size() - done, used_ / 2 - count);
      count = RunSome(part.subspan(done, n), input, count, out);
      input += static_cast<uint32_t>(n);
      done += n;
      if (count == used_ / 2 && input < inputs) Grow(count, inputs, out);
    }
  }
  out->unique.resize(count);
  out->first.resize(count);
}

uint32_t Deduper::RunSome(absl::Span<const uint64_t> part, uint32_t input, uint32_t count,
                          UniqueIds* out) {
  Slot* const slots = slots_.get();
  uint64_t* const unique = out->unique.data();
  uint32_t* const first = out->first.data();
  uint32_t* const next = out->next.data();
  uint32_t* const last = last_.data();
  const uint64_t mask = used_ - 1;
  const uint64_t* const ids = part.data();
  const size_t n = part.size();
  for (size_t i = 0; i < n; ++i, ++input) {
    if (i + kLookahead < n) __builtin_prefetch(&slots[HashOf(ids[i + kLookahead]) & mask], 1);
    const uint64_t id = ids[i];
    const uint64_t hash = HashOf(id);
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    next[input] = kNoIndex;
    for (uint64_t s = hash & mask;; s = (s + 1) & mask) {
      Slot& slot = slots[s];
      if (slot.index == kNoIndex) {
        slot = {count, tag};
        unique[count] = id;
        first[count] = input;
        last[count] = input;
        ++count;
        break;
      }
      if (slot.tag == tag && unique[slot.index] == id) {
        next[last[slot.index]] = input;
        last[slot.index] = input;
        break;
      }
    }
  }
  return count;
}

}  // namespace hotbed
