// Removes duplicate ids and remembers where each id occurred.
//
// Unique ids keep the order of their first appearance, which fixes the order in which duplicate
// gradients are summed (DESIGN section 4). Open addressing with linear probing at a load of at most
// one half; the slots are kept between calls. Thread-compatible.
#ifndef HOTBED_CLIENT_BATCH_DEDUPE_H_
#define HOTBED_CLIENT_BATCH_DEDUPE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace hotbed {

inline constexpr uint32_t kNoIndex = 0xffffffffu;  // ends a chain of occurrences
inline constexpr uint64_t kIdsPerCallMax = kNoIndex - 1;

// `unique[u]` occurs at the inputs first[u], next[first[u]], ... until kNoIndex, in growing order.
struct UniqueIds {
  std::vector<uint64_t> unique;
  std::vector<uint32_t> first;
  std::vector<uint32_t> next;  // one for each input

  void Clear() {
    unique.clear();
    first.clear();
    next.clear();
  }
};

// A piece of the inputs.
struct IdsPart {
  absl::Span<const uint64_t> ids;
  const uint8_t* skip = nullptr;  // one byte an id, not 0: the input counts for nothing; or null
};

class Deduper {
 public:
  // `parts` are taken as one sequence of inputs; at most kIdsPerCallMax of them. Inputs that are
  // skipped are in no chain.
  void Run(absl::Span<const IdsPart> parts, UniqueIds* out);
  // The same, told the other way round: input i is unique[index[i]], kNoIndex if it is skipped.
  // `index` has room for all inputs.
  void RunIndexed(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique, uint32_t* index);

 private:
  struct Chains;
  struct Indices;
  // The tag is the upper half of the hash: most probes that miss never touch the ids.
  struct Slot {
    uint32_t index;
    uint32_t tag;
  };
  // A Sink is told what becomes of each input, and has room for it.
  template <typename Sink>
  void RunInto(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique, Sink* sink);
  // Takes inputs input, input + 1, ...; the number of unique ids after them. There is room for one
  // more each.
  template <typename Sink>
  uint32_t RunSome(const IdsPart& part, uint32_t input, uint32_t count, uint64_t* unique,
                   Sink* sink);
  // Empty `slots` (a power of two).
  void Reserve(uint64_t slots);
  // Four times the slots, the unique ids put in again.
  void Grow(absl::Span<const uint64_t> unique);

  std::unique_ptr<Slot[]> slots_;
  uint64_t capacity_ = 0;  // allocated
  uint64_t used_ = 0;      // of this run, a power of two
  std::vector<uint32_t> last_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_DEDUPE_H_
