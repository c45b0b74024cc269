// Binds a jagged batch to the features of an Embeddings: the part of the batch that each feature
// reads, and the resolved ids. Pure functions.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/batch/dedupe.h"
#include "client/batch/resolve_ids.h"
#include "hotbed/embedding.h"

namespace hotbed {

// One feature's part of a batch. Reads the batch, which outlives it.
struct BoundFeature {
  const EmbeddingFeature* feature = nullptr;
  absl::Span<const uint32_t> lengths;  // of its bags
  absl::Span<const uint32_t> inverse;  // the bag of each sample; empty: that of its own number
  absl::Span<const uint64_t> ids;      // as in the batch
  const float* weights = nullptr;      // one per id, or null: all 1
  ResolvedIds resolved;

  uint32_t dim() const { return feature->table->dim(); }
  bool pooled() const { return feature->pooling != Pooling::kNone; }
  bool skips(uint64_t i) const { return resolved.skip != nullptr && resolved.skip[i] != 0; }
  // The divisor of the mean of ids [begin, end): the number of ids that are not padding, or the sum
  // of their weights. 0: the bag is zeros.
  float Divisor(uint64_t begin, uint64_t end) const;
};

// Sets bound[f] for features[f]; `bound` keeps its memory. On an error nothing may be sent: the
// batch is not valid, lacks a feature's key, has weights for a feature that takes none, or has an
// id that bounds mode `error` refuses. The error names feature and position.
absl::Status BindBatch(absl::Span<const EmbeddingFeature> features, const JaggedBatch& batch,
                       std::vector<BoundFeature>* bound);

// How the gradients of a pooled feature's ids follow from those of its bags. One element per id.
struct BagGradient {
  std::vector<uint32_t> rows;       // the id's bag
  std::vector<float> coefficients;  // empty: all 1
  std::vector<uint32_t> positions;  // in the bag; max only
};
void DescribeBags(const BoundFeature& bound, BagGradient* out);

// Divides the coefficient of each id by the number of times that its row occurs in the feature's
// ids. Empty coefficients are all 1.
void ScaleByFrequency(const BoundFeature& bound, Deduper* deduper, UniqueIds* scratch,
                      std::vector<float>* coefficients);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDING_BATCH_H_
