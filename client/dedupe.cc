#include "client/dedupe.h"

#include <bit>
#include <cstring>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr size_t kLookahead = 16;                     // ids whose slot is fetched early
constexpr uint64_t kSlotsKept = 1ull << 22;           // 32 MiB; larger tables are given back
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

uint64_t HashOf(uint64_t id) {
  const uint64_t h = id * kMultiplier;
  return h ^ (h >> 32);
}

}  // namespace

void Deduper::Reserve(uint64_t inputs) {
  used_ = std::bit_ceil(inputs * 2 < 16 ? uint64_t{16} : inputs * 2);
  if (used_ > capacity_ || (capacity_ > kSlotsKept && used_ <= kSlotsKept)) {
    slots_.reset(new Slot[used_]);
    capacity_ = used_;
  }
  std::memset(slots_.get(), 0xff, used_ * sizeof(Slot));
}

void Deduper::Run(absl::Span<const absl::Span<const uint64_t>> parts, UniqueIds* out) {
  uint64_t inputs = 0;
  for (const auto& part : parts) inputs += part.size();
  HOTBED_CHECK(inputs <= kIdsPerCallMax) << inputs << " ids in one call";
  Reserve(inputs);
  // Sized for the worst case and cut afterwards: the loop below then only stores.
  out->unique.resize(inputs);
  out->first.resize(inputs);
  out->next.resize(inputs);
  last_.resize(inputs);
  Slot* const slots = slots_.get();
  uint64_t* const unique = out->unique.data();
  uint32_t* const first = out->first.data();
  uint32_t* const next = out->next.data();
  uint32_t* const last = last_.data();
  const uint64_t mask = used_ - 1;
  uint32_t count = 0;
  uint32_t input = 0;
  for (const auto& part : parts) {
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
  }
  out->unique.resize(count);
  out->first.resize(count);
}

}  // namespace hotbed
