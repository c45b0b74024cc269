// Embeddings: the lookups of a model over its features, forward and backward.
//
//   auto embeddings = hotbed::Embeddings::Create(client, {
//       {.feature = "product", .table = product, .pooling = hotbed::Pooling::kSum},
//       {.feature = "user", .table = user, .pooling = hotbed::Pooling::kMean}});
//   hotbed::EmbeddingOutput out;
//   (*embeddings)->Forward(batch, &out).Wait();      // out.values: [batch, sum of dims]
//   ...                                              // the model computes d loss / d out
//   (*embeddings)->Backward(step, batch, out, gradients).Wait();
//
// Several features may read one table, and one feature several tables (name it twice). Outputs come
// in the order of the list, whatever the order of the batch's keys. Bags are pooled where fewer
// bytes travel: on the servers (partial bags per shard, joined here in shard order), or here where
// ids repeat so often that the distinct rows are fewer bytes than the bags.
//
//   sum    out = sum of w_k * row_k             weights default to 1
//   mean   out = sum / number of ids in the bag; weighted: sum of w_k * row_k / sum of w_k
//   max    out[i] = the largest row_k[i]; its gradient goes to that row alone (of equals the first;
//          the others of the bag are touched with a gradient of 0); weights are refused
//   none   one row an id (sequence), in the order of the ids; weights are refused
//
// An empty bag is zeros, and so is a mean whose weights add up to 0 (it has no gradient). The
// table's padding id counts for nothing: no row, no gradient, not in a mean's number; under none it
// is a row of zeros. An id outside of a bounded table's rows goes by the table's bounds mode: error
// (naming feature and position), zero (as the padding id, but it counts in a mean's number; counted
// in EmbeddingOutput::out_of_bounds), or modulo.
//
// Thread rule: thread-safe; buffers named in a call belong to it until its Future is ready, and
// Embeddings live until all their Futures are. Bags are pooled on the thread that brings the last
// answer, which is the one that waits where one does.
#ifndef HOTBED_EMBEDDING_H_
#define HOTBED_EMBEDDING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hotbed/batch.h"
#include "hotbed/client.h"
#include "hotbed/future.h"

namespace hotbed {

enum class Pooling : uint8_t { kSum = 0, kMean = 1, kMax = 2, kNone = 3 };

struct EmbeddingFeature {
  std::string feature;  // key of the batch
  const Table* table = nullptr;
  Pooling pooling = Pooling::kSum;
  std::string output;  // name of the output; empty: the feature, or feature@table where it is twice
};

enum class PoolingPlace : uint8_t { kAuto = 0, kServer = 1, kClient = 2 };

struct EmbeddingOptions {
  // kClient makes outputs bit-identical for every set of shards; else another set of shards is
  // within 1e-6 (DECISIONS N3).
  PoolingPlace pooling_at = PoolingPlace::kAuto;
  const RowType* wire_type = nullptr;  // of rows and pooled sums; null: the client's
  absl::Duration deadline = absl::ZeroDuration();
};

struct EmbeddingOutput {
  struct Feature {
    std::string name;
    uint32_t dim = 0;
    Pooling pooling = Pooling::kSum;
    uint32_t column = 0;  // pooled: where its dim columns begin in `values`
    // kNone only: one row an id of the feature, and the lengths of its samples.
    std::vector<float> sequence;
    std::vector<uint32_t> lengths;
  };
  uint32_t batch_size = 0;
  uint32_t columns = 0;           // sum of the pooled features' dims
  std::vector<float> values;      // batch_size x columns, row-major
  std::vector<Feature> features;  // in the order of EmbeddingFeature
  uint64_t out_of_bounds = 0;     // ids that a table's bounds mode `zero` made nothing
  // Of max-pooled features, for Backward: which id of its bag an element is from.
  std::vector<std::vector<uint32_t>> arg_max;

  const Feature* Find(const std::string& name) const;
};

// Gradients as Forward's outputs have them.
struct OutputGradients {
  absl::Span<const float> values;                  // batch_size x columns
  std::vector<absl::Span<const float>> sequences;  // one a feature; empty unless kNone
};

struct BackwardOptions {
  PushOptions push;
  // As PushOptions has them; these are looked at, not those of `push`.
  float clip_global_norm = 0.0f;
  float gradient_scale = 1.0f;  // multiplied in first: 1/k of accumulation, loss scaling
};

// Gradients of rows, each id once, in the order of first appearance.
struct SparseGradient {
  const Table* table = nullptr;
  std::vector<uint64_t> ids;
  std::vector<float> gradients;  // ids.size() x dim
};

class Embeddings {
 public:
  // InvalidArgument names the feature: no name, no table, a table of another client, a pooling that
  // is not one, two outputs of one name. `client` outlives this.
  static absl::StatusOr<std::unique_ptr<Embeddings>> Create(Client* client,
                                                            std::vector<EmbeddingFeature> features,
                                                            const EmbeddingOptions& options = {});
  virtual ~Embeddings() = default;

  // `batch` must have every feature's key; keys that no feature names are passed over. Refused
  // whole, with nothing sent, where the batch is not valid, a feature with pooling none has
  // weights, or an id is out of bounds in a table of bounds mode `error`.
  virtual Future<absl::Status> Forward(const JaggedBatch& batch, EmbeddingOutput* output) = 0;

  // One push of one step: gradients of the outputs become gradients of rows, duplicates summed over
  // all features of a table in the order of first appearance (features in the list's order).
  // `batch` and `output` are those of Forward.
  virtual Future<PushResult> Backward(uint64_t step, const JaggedBatch& batch,
                                      const EmbeddingOutput& output,
                                      const OutputGradients& gradients,
                                      const BackwardOptions& options = {}) = 0;

  // What Backward would push, instead of pushing it; how tables with optimizer `none` are used, and
  // what accumulation adds up. Tables in the order of the features.
  virtual absl::StatusOr<std::vector<SparseGradient>> Gradients(
      const JaggedBatch& batch, const EmbeddingOutput& output,
      const OutputGradients& gradients) = 0;
};

// Sums sparse gradients of k micro-batches, in the order of Add, and pushes them as one step.
// Thread-compatible.
class GradientAccumulator {
 public:
  GradientAccumulator();
  ~GradientAccumulator();
  // InvalidArgument, and nothing is added, where a gradient has no table, is not ids x dim floats,
  // or `scale` is not finite.
  absl::Status Add(absl::Span<const SparseGradient> gradients, float scale = 1.0f);
  // Everything added since the last Take, each id once, and begins anew.
  std::vector<SparseGradient> Take();
  uint32_t added() const;  // calls of Add since the last Take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Pushes sparse gradients: Client::Push with one feature a table, after clipping.
Future<PushResult> PushGradients(Client* client, uint64_t step,
                                 absl::Span<const SparseGradient> gradients,
                                 const BackwardOptions& options = {});

// The norm over all rows of all tables, in double precision, in order.
double GlobalNorm(absl::Span<const SparseGradient> gradients);

}  // namespace hotbed

#endif  // HOTBED_EMBEDDING_H_
