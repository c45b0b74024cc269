// JaggedBatch: the sparse inputs of one training step, and the operations on them before they are
// looked up.
//
// Keys name features. Each feature has, for each of `batch_size` samples, a bag of ids of any
// length, including zero; each id may have a weight. The order is key-major, as in TorchRec's
// KeyedJaggedTensor: all samples of key 0, then all samples of key 1.
//
// Ids are 64-bit patterns, as tables store them: int32 and int64 ids are sign-extended, uint64 ids
// stay as they are; all are exact beyond 2^53. Thread-compatible plain values.
#ifndef HOTBED_BATCH_H_
#define HOTBED_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hotbed {

struct JaggedBatch {
  std::vector<std::string> keys;
  uint32_t batch_size = 0;
  std::vector<uint32_t> lengths;  // keys.size() x batch_size, key-major
  std::vector<uint64_t> ids;      // sum of lengths
  std::vector<float> weights;     // one per id, or none: all bags are unweighted

  // Each makes a batch and validates it. InvalidArgument names the feature and the position where
  // lengths do not add up to the ids, there is not one weight per id, a weight is not finite,
  // offsets decrease or do not begin at 0, a key occurs twice, or lengths.size() is not keys.size()
  // x batch_size.
  static absl::StatusOr<JaggedBatch> FromLengths(std::vector<std::string> keys,
                                                 std::vector<uint32_t> lengths,
                                                 std::vector<uint64_t> ids,
                                                 std::vector<float> weights = {});
  // `offsets` as in FBGEMM: keys x batch + 1 numbers, the first 0, the last ids.size().
  static absl::StatusOr<JaggedBatch> FromOffsets(std::vector<std::string> keys,
                                                 absl::Span<const int64_t> offsets,
                                                 std::vector<uint64_t> ids,
                                                 std::vector<float> weights = {});
  absl::Status Validate() const;

  bool weighted() const { return !weights.empty(); }
  // The prefix sums of `lengths`, beginning with 0: lengths.size() + 1 numbers.
  std::vector<uint64_t> Offsets() const;
  std::vector<uint64_t> LengthPerKey() const;
  std::vector<uint64_t> OffsetPerKey() const;  // keys.size() + 1
  // The index of a key. NotFound names it and the most similar key that the batch has.
  absl::StatusOr<size_t> IndexOf(const std::string& key) const;

  // --- New batches. InvalidArgument names the argument.
  //
  // Consecutive groups of keys. `counts` adds up to keys.size(); a group may be empty.
  absl::StatusOr<std::vector<JaggedBatch>> Split(absl::Span<const size_t> counts) const;
  // The keys at the indices `order`, which may omit and repeat keys. A repeated key gets a suffix:
  // "product#1".
  absl::StatusOr<JaggedBatch> Permute(absl::Span<const size_t> order) const;
  // The keys of all parts, one part after another. Batch sizes must be equal, no key may occur
  // twice, and all parts or none must be weighted.
  static absl::StatusOr<JaggedBatch> Concat(absl::Span<const JaggedBatch> parts);
  // The samples of all parts, one part after another. All parts have the same keys in the same
  // order.
  static absl::StatusOr<JaggedBatch> ConcatSamples(absl::Span<const JaggedBatch> parts);
  // Samples [first, first + count).
  absl::StatusOr<JaggedBatch> Samples(uint32_t first, uint32_t count) const;
  // The named keys in groups, as KeyedTensor.regroup does: one batch per group.
  absl::StatusOr<std::vector<JaggedBatch>> Regroup(
      absl::Span<const std::vector<std::string>> groups) const;
};

// Ids as tables store them.
std::vector<uint64_t> IdsFrom(absl::Span<const int32_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const int64_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const uint64_t> ids);

}  // namespace hotbed

#endif  // HOTBED_BATCH_H_
