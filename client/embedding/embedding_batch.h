// A jagged batch seen through the features of an Embeddings: what each feature reads of it, and
// what the tables make of the ids. Pure.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/resolve_ids.h"
#include "hotbed/embedding.h"

namespace hotbed {

// One feature's part of a batch. Reads the batch, which outlives it.
struct BoundFeature {
  const EmbeddingFeature* feature = nullptr;
  absl::Span<const uint32_t> lengths;  // of its bags
  absl::Span<const uint64_t> ids;      // as the batch has them
  const float* weights = nullptr;      // one an id, or null: all 1
  ResolvedIds resolved;

  uint32_t dim() const { return feature->table->dim(); }
  bool pooled() const { return feature->pooling != Pooling::kNone; }
  bool skips(uint64_t i) const { return resolved.skip != nullptr && resolved.skip[i] != 0; }
  // What a mean of ids [begin, end) is divided by: how many are not padding, or their weights'
  // sum. 0: the bag is zeros.
  float Divisor(uint64_t begin, uint64_t end) const;
};

// bound[f] for features[f]; keeps its memory. An error means that nothing may be sent: the batch is
// not valid, has not a feature's key, weighs a feature that takes no weights, or has an id that
// bounds mode `error` refuses; it names feature and position.
absl::Status BindBatch(absl::Span<const EmbeddingFeature> features, const JaggedBatch& batch,
                       std::vector<BoundFeature>* bound);

// By id of a pooled feature, what its gradient is made of.
struct BagGradient {
  std::vector<uint32_t> rows;       // its bag
  std::vector<float> coefficients;  // empty: all 1
  std::vector<uint32_t> positions;  // in its bag; max only
};
void DescribeBags(const BoundFeature& bound, BagGradient* out);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_
