#include "client/batch/dedupe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr size_t kSlotLookahead = 16;                 // ids whose slot is fetched early
constexpr uint64_t kSlotsKept = 1ull << 20;           // 8 MiB; larger tables are freed
constexpr uint64_t kSlotsAtFirstMax = 1ull << 17;     // 1 MiB: stays in the second-level cache
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

uint64_t HashOf(uint64_t id) {
  const uint64_t h = id * kMultiplier;
  return h ^ (h >> 32);
}

}  // namespace

// Records the inputs of each unique id, as UniqueIds describes.
struct Deduper::Chains {
  UniqueIds* out;
  std::vector<uint32_t>* last_of;
  uint32_t* first = nullptr;
  uint32_t* next = nullptr;
  uint32_t* last = nullptr;

  void Room(uint64_t unique) {
    out->first.resize(unique);
    if (last_of->size() < unique) last_of->resize(unique);
    first = out->first.data();
    next = out->next.data();
    last = last_of->data();
  }
  void Skip(uint32_t input) { next[input] = kNoIndex; }
  void First(uint32_t input, uint32_t u) {
    next[input] = kNoIndex;
    first[u] = input;
    last[u] = input;
  }
  void Again(uint32_t input, uint32_t u) {
    next[input] = kNoIndex;
    next[last[u]] = input;
    last[u] = input;
  }
};

// Records the unique id of each input.
struct Deduper::Indices {
  uint32_t* index;

  void Room(uint64_t) {}
  void Skip(uint32_t input) { index[input] = kNoIndex; }
  void First(uint32_t input, uint32_t u) { index[input] = u; }
  void Again(uint32_t input, uint32_t u) { index[input] = u; }
};

void Deduper::Reserve(uint64_t slots) {
  used_ = slots;
  if (used_ > capacity_ || (capacity_ > kSlotsKept && used_ <= kSlotsKept)) {
    slots_.reset(new Slot[used_]);
    capacity_ = used_;
  }
  std::memset(slots_.get(), 0xff, used_ * sizeof(Slot));
}

void Deduper::Grow(absl::Span<const uint64_t> unique) {
  Reserve(used_ * 4);
  const uint64_t mask = used_ - 1;
  for (uint32_t u = 0; u < unique.size(); ++u) {
    const uint64_t hash = HashOf(unique[u]);
    uint64_t s = hash & mask;
    while (slots_[s].index != kNoIndex) s = (s + 1) & mask;
    slots_[s] = {u, static_cast<uint32_t>(hash >> 32)};
  }
}

void Deduper::Run(absl::Span<const IdsPart> parts, UniqueIds* out) {
  uint64_t inputs = 0;
  for (const IdsPart& part : parts) inputs += part.ids.size();
  out->next.resize(inputs);
  Chains chains{out, &last_};
  RunInto(parts, &out->unique, &chains);
  out->first.resize(out->unique.size());
}

void Deduper::RunIndexed(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique,
                         uint32_t* index) {
  Indices indices{index};
  RunInto(parts, unique, &indices);
}

template <typename Sink>
void Deduper::RunInto(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique, Sink* sink) {
  uint64_t inputs = 0;
  for (const IdsPart& part : parts) inputs += part.ids.size();
  HOTBED_CHECK(inputs <= kIdsPerCallMax) << inputs << " ids in one call";
  Reserve(std::min(kSlotsAtFirstMax, std::bit_ceil(inputs * 2 + 16)));
  // No more than there are inputs: memory that grows again is zero-filled each time.
  const auto make_room = [&] {
    const uint64_t room = std::min(used_ / 2, inputs);
    unique->resize(room);
    sink->Room(room);
  };
  make_room();
  uint32_t count = 0;
  uint32_t input = 0;
  for (const IdsPart& part : parts) {
    size_t done = 0;
    while (done < part.ids.size()) {
      // A run may fill the memory for unique ids, and not exceed it.
      const size_t n = std::min<size_t>(part.ids.size() - done, used_ / 2 - count);
      const IdsPart some{part.ids.subspan(done, n),
                         part.skip == nullptr ? nullptr : part.skip + done};
      count = RunSome(some, input, count, unique->data(), sink);
      input += static_cast<uint32_t>(n);
      done += n;
      if (count == used_ / 2 && input < inputs) {
        Grow({unique->data(), count});
        make_room();
      }
    }
  }
  unique->resize(count);
}

template <typename Sink>
uint32_t Deduper::RunSome(const IdsPart& part, uint32_t input, uint32_t count, uint64_t* unique,
                          Sink* out) {
  Slot* const slots = slots_.get();
  Sink sink = *out;  // a local object: its pointers stay in registers
  const uint64_t mask = used_ - 1;
  const uint64_t* const ids = part.ids.data();
  const uint8_t* const skip = part.skip;
  const size_t n = part.ids.size();
  for (size_t i = 0; i < n; ++i, ++input) {
    if (i + kSlotLookahead < n)
      __builtin_prefetch(&slots[HashOf(ids[i + kSlotLookahead]) & mask], 1);
    if (skip != nullptr && skip[i] != 0) {
      sink.Skip(input);
      continue;
    }
    const uint64_t id = ids[i];
    const uint64_t hash = HashOf(id);
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    for (uint64_t s = hash & mask;; s = (s + 1) & mask) {
      Slot& slot = slots[s];
      if (slot.index == kNoIndex) {
        slot = {count, tag};
        unique[count] = id;
        sink.First(input, count);
        ++count;
        break;
      }
      if (slot.tag == tag && unique[slot.index] == id) {
        sink.Again(input, slot.index);
        break;
      }
    }
  }
  return count;
}

}  // namespace hotbed
