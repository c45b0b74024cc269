// Pulls and pushes that name composed tables, as calls that name their parts instead.
#ifndef HOTBED_CLIENT_COMPOSED_COMPOSED_CALLS_H_
#define HOTBED_CLIENT_COMPOSED_COMPOSED_CALLS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/composed/composed_rows.h"
#include "client/net/client_counters.h"
#include "hotbed/client.h"

namespace hotbed {

template <typename Feature>
bool AnyComposed(absl::Span<const Feature> features) {
  for (const Feature& feature : features) {
    if (AsComposed(feature.table) != nullptr) return true;
  }
  return false;
}

// One call of Pull or Lookup. Thread-compatible.
class ComposedPull {
 public:
  // Refuses what a pull of a plain table refuses, and what composed tables do not take. `owner` is
  // the client of the tables.
  static absl::StatusOr<std::unique_ptr<ComposedPull>> Plan(absl::Span<const PullFeature> features,
                                                            RowType wire_type, const void* owner,
                                                            ClientCounters* counters);
  // The features to pull instead; none: there is nothing to pull.
  absl::Span<const PullFeature> pulls() const { return pulls_; }
  // Writes the rows, once `pulls` were answered.
  void Finish();

 private:
  struct Feature {
    PullFeature asked;
    std::unique_ptr<ComposedRows> rows;
  };
  std::vector<Feature> composed_;
  std::vector<PullFeature> pulls_;
};

// One call of Push. Thread-compatible.
class ComposedPush {
 public:
  // As ComposedPull::Plan. The features' buffers outlive it.
  static absl::StatusOr<std::unique_ptr<ComposedPush>> Plan(absl::Span<const PushFeature> features,
                                                            const PushOptions& options,
                                                            const void* owner);
  // The rows that the gradients of the parts depend on, to be pulled first; none: on no rows.
  absl::Span<const PullFeature> pulls() const { return pulls_; }
  // The features to push instead, once `pulls` were answered. They live as long as this.
  absl::Span<const PushFeature> Pushes();

 private:
  struct Feature {
    PushFeature given;
    std::unique_ptr<ComposedRows> rows;
  };
  std::vector<PushFeature> pushes_;
  std::vector<Feature> composed_;
  std::vector<PullFeature> pulls_;
};

// The gradients of the parts' rows, in `rows`, from those of `push`, whose ids were bound.
void SplitGradients(const PushFeature& push, ComposedRows* rows);
// Whether they depend on the rows of the parts.
bool DependsOnRows(const PushFeature& push, const ComposedRows& rows);

// Whether gradients that were summed by id, as Embeddings::Gradients sums them, mean the same to
// the table as those of the bags: not where a bag's other ids or its maximum enter.
bool SumsById(const ComposedHandle& table, bool max);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_COMPOSED_COMPOSED_CALLS_H_
