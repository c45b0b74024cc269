// JaggedBatch: the sparse inputs of one training step, and the operations on them before they are
// looked up.
//
// Keys name features. Each feature has, for each of `batch_size` samples, a bag of ids of any
// length, including zero; each id may have a weight. The order is key-major, as in TorchRec's
// KeyedJaggedTensor: all samples of key 0, then all samples of key 1.
//
// A batch may be variable (TorchRec's variable batch per feature): a key then has bags of its own
// number, and `inverse` says which of them a sample has. Samples that share a bag are looked up and
// pooled once.
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
#include "hotbed/jagged_tensor.h"

namespace hotbed {

struct JaggedBatch {
  std::vector<std::string> keys;
  uint32_t batch_size = 0;
  std::vector<uint32_t> lengths;  // keys.size() x batch_size, key-major
  std::vector<uint64_t> ids;      // sum of lengths
  std::vector<float> weights;     // one per id, or none: all bags are unweighted
  // Variable batches only; `lengths` then has the bags of all keys, key-major.
  std::vector<uint32_t> bags_per_key;  // one per key
  std::vector<uint32_t> inverse;       // keys.size() x batch_size: the sample's bag of that key

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
  // A variable batch. InvalidArgument also names a sample whose bag does not exist.
  static absl::StatusOr<JaggedBatch> FromVariable(
      std::vector<std::string> keys, uint32_t batch_size, std::vector<uint32_t> bags_per_key,
      std::vector<uint32_t> lengths, std::vector<uint64_t> ids, std::vector<uint32_t> inverse,
      std::vector<float> weights = {});
  // One feature per key, all of the same number of samples and of width 1. `weights`: one tensor
  // per key, or none.
  static absl::StatusOr<JaggedBatch> FromFeatures(
      std::vector<std::string> keys, absl::Span<const JaggedTensor<uint64_t>> ids,
      absl::Span<const JaggedTensor<float>> weights = {});
  absl::Status Validate() const;

  bool variable() const { return !bags_per_key.empty(); }
  uint32_t BagsOf(size_t key) const { return variable() ? bags_per_key[key] : batch_size; }
  // The ids, or the weights, of one key, by bag. NotFound as IndexOf; FailedPrecondition: the batch
  // has no weights.
  absl::StatusOr<JaggedTensor<uint64_t>> Feature(const std::string& key) const;
  absl::StatusOr<JaggedTensor<float>> FeatureWeights(const std::string& key) const;
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
  // order. Variable parts are expanded.
  static absl::StatusOr<JaggedBatch> ConcatSamples(absl::Span<const JaggedBatch> parts);
  // Samples [first, first + count); a variable batch is expanded.
  absl::StatusOr<JaggedBatch> Samples(uint32_t first, uint32_t count) const;
  // The named keys in groups, as KeyedTensor.regroup does: one batch per group.
  absl::StatusOr<std::vector<JaggedBatch>> Regroup(
      absl::Span<const std::vector<std::string>> groups) const;
  // The same samples, each with bags of its own: not variable.
  absl::StatusOr<JaggedBatch> Expand() const;
  // The same samples as a variable batch in which no two bags of a key are equal. Bags keep the
  // order of first appearance.
  absl::StatusOr<JaggedBatch> ShareEqualBags() const;
};

// Ids as tables store them.
std::vector<uint64_t> IdsFrom(absl::Span<const int32_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const int64_t> ids);
std::vector<uint64_t> IdsFrom(absl::Span<const uint64_t> ids);

}  // namespace hotbed

#endif  // HOTBED_BATCH_H_
