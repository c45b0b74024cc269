// JaggedBatch: the sparse inputs of one training step, and what may be done to them before they are
// looked up.
//
// Keys name features. Each feature has, for each of `batch_size` samples, a bag of ids of any
// length, also zero; ids may have a weight each. Key-major, as TorchRec's KeyedJaggedTensor: all
// samples of key 0, then all of key 1.
//
// Ids are the 64-bit patterns that tables know (DECISIONS P2): int32 and int64 ids are
// sign-extended, uint64 ids stay as they are, all exact beyond 2^53. Thread-compatible plain
// values.
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
  std::vector<float> weights;     // as many as ids, or none: all bags are unweighted

  // The whole batch, checked. InvalidArgument names the feature and the position: lengths that do
  // not add up to the ids, weights of another length, a weight that is not finite, offsets that
  // fall or do not begin at 0, a key that occurs twice, keys.size() x batch_size beside
  // lengths.size().
  static absl::StatusOr<JaggedBatch> FromLengths(std::vector<std::string> keys,
                                                 std::vector<uint32_t> lengths,
                                                 std::vector<uint64_t> ids,
                                                 std::vector<float> weights = {});
  // `offsets` as FBGEMM has them: keys x batch + 1 numbers, the first 0, the last ids.size().
  static absl::StatusOr<JaggedBatch> FromOffsets(std::vector<std::string> keys,
                                                 absl::Span<const int64_t> offsets,
                                                 std::vector<uint64_t> ids,
                                                 std::vector<float> weights = {});
  absl::Status Validate() const;

  bool weighted() const { return !weights.empty(); }
  // The complete prefix sums of `lengths`, with the leading 0: lengths.size() + 1 numbers.
  std::vector<uint64_t> Offsets() const;
  std::vector<uint64_t> LengthPerKey() const;
  std::vector<uint64_t> OffsetPerKey() const;  // keys.size() + 1
  // Index of a key; NotFound names it and the nearest known one.
  absl::StatusOr<size_t> IndexOf(const std::string& key) const;

  // --- new batches; errors name the argument
  // Consecutive groups of keys: `counts` adds up to keys.size(); a group may be empty.
  absl::StatusOr<std::vector<JaggedBatch>> Split(absl::Span<const size_t> counts) const;
  // The keys at `order`, which may leave keys out and repeat them (a repeated key gets a suffix:
  // "product#1").
  absl::StatusOr<JaggedBatch> Permute(absl::Span<const size_t> order) const;
  // Keys of all parts side by side; equal batch sizes, no key twice, all weighted or none.
  static absl::StatusOr<JaggedBatch> Concat(absl::Span<const JaggedBatch> parts);
  // Samples of all parts one behind the other; the same keys in the same order.
  static absl::StatusOr<JaggedBatch> ConcatSamples(absl::Span<const JaggedBatch> parts);
  // Samples [first, first + count).
  absl::StatusOr<JaggedBatch> Samples(uint32_t first, uint32_t count) const;
  // The named keys in groups, as KeyedTensor.regroup: one batch a group.
  absl::StatusOr<std::vector<JaggedBatch>> Regroup(
      absl::Span<const std::vector<std::string>> groups) const;
};

// Ids as tables know them.
std::vector<uint64_t> IdsFrom(absl::Span<const int32_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const int64_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const uint64_t> ids);

}  // namespace hotbed

#endif  // HOTBED_BATCH_H_
