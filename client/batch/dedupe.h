// Removes duplicate ids and remembers where each id occurred.
//
// Unique ids keep the order of their first appearance, which determines the order in which
// duplicate gradients are summed. A hash table with open addressing and linear probing, at most
// half full; its slots are kept between calls. Thread-compatible.
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

// A part of the inputs.
struct IdsPart {
  absl::Span<const uint64_t> ids;
  const uint8_t* skip = nullptr;  // one byte per id, not 0: the input is skipped; or null
};

class Deduper {
 public:
  // `parts` form one sequence of at most kIdsPerCallMax inputs. Skipped inputs are in no chain.
  void Run(absl::Span<const IdsPart> parts, UniqueIds* out);
  // As Run, but by input: input i is unique[index[i]], or index[i] is kNoIndex because it is
  // skipped. `index` has room for all inputs.
  void RunIndexed(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique, uint32_t* index);

 private:
  struct Chains;
  struct Indices;
  // The tag is the upper half of the hash: most probes that miss never touch the ids.
  struct Slot {
    uint32_t index;
    uint32_t tag;
  };
  // A Sink takes the result of each input, and has room for it.
  template <typename Sink>
  void RunInto(absl::Span<const IdsPart> parts, std::vector<uint64_t>* unique, Sink* sink);
  // Takes the inputs input, input + 1, ...; returns the number of unique ids after them. `unique`
  // and the slots have room for one more id per input.
  template <typename Sink>
  uint32_t RunSome(const IdsPart& part, uint32_t input, uint32_t count, uint64_t* unique,
                   Sink* sink);
  // Makes `slots` (a power of two) empty slots.
  void Reserve(uint64_t slots);
  // Makes four times as many slots and inserts the unique ids again.
  void Grow(absl::Span<const uint64_t> unique);

  std::unique_ptr<Slot[]> slots_;
  uint64_t capacity_ = 0;  // allocated
  uint64_t used_ = 0;      // of this run, a power of two
  std::vector<uint32_t> last_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_DEDUPE_H_
