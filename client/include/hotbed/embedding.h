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
// Several features may read one table, and one feature may read several tables (name it once per
// table). Outputs come in the order of the list, whatever the order of the batch's keys. Bags are
// pooled where fewer bytes travel: on the servers, which answer partial bags per shard that the
// client joins in the order of the shards; or in the client, where ids repeat so often that the
// distinct rows have fewer bytes than the bags.
//
//   sum    out = sum of w_k * row_k             weights default to 1
//   mean   out = sum / number of ids in the bag; weighted: sum of w_k * row_k / sum of w_k
//   max    out[i] = the largest row_k[i]; its gradient goes to that row alone (the first of equals;
//          the other rows of the bag get a gradient of 0); weights are refused
//   none   one row per id (a sequence), in the order of the ids; weights are refused
//
// Each bag of a variable batch is pooled once, and every sample gets the output of its bag; the
// gradient of a bag is the sum over its samples. Pooling none takes no variable batch.
//
// An empty bag is zeros, and so is a mean whose weights add up to 0, which has no gradient. The
// table's padding id has no row and no gradient, and does not count in a mean's number of ids;
// under none it is a row of zeros. An id outside a bounded table's rows follows the table's bounds
// mode:
//   error   the call is refused; the error names feature and position
//   zero    as the padding id, but the id counts in a mean's number of ids and in
//           EmbeddingOutput::out_of_bounds
//   modulo  the id modulo the table's rows
//
// Thread rule: thread-safe. Buffers named in a call belong to it until its Future is ready, and
// Embeddings must outlive all of their Futures. Bags are pooled on the thread that reads the last
// answer, which is the waiting thread where one waits.
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
#include "hotbed/look_ahead.h"
#include "hotbed/pooling.h"

namespace hotbed {

struct EmbeddingFeature {
  std::string feature;  // key of the batch
  const Table* table = nullptr;
  Pooling pooling = Pooling::kSum;
  // Name of the output. Empty: the feature, or feature@table where the feature occurs twice.
  std::string output;
  // Each gradient of an id is divided by the number of times that the id occurs in the feature's
  // part of the batch: PyTorch's scale_grad_by_freq.
  bool scale_by_frequency = false;
};

// Where bags are pooled; kAuto: where fewer bytes travel.
enum class PoolingPlace : uint8_t { kAuto = 0, kServer = 1, kClient = 2 };

struct EmbeddingOptions {
  // kClient makes outputs bit-identical for every set of shards. Otherwise outputs of different
  // sets of shards differ by at most 1e-6.
  PoolingPlace pooling_at = PoolingPlace::kAuto;
  const RowType* wire_type = nullptr;  // of rows and pooled sums; null: the client's pull_type
  absl::Duration deadline = absl::ZeroDuration();  // of Forward; zero: the client's
  // Reads ahead: Announce begins to pull the rows of a batch, Forward blocks and hands out the
  // batches in the order of their announcement, and Backward pushes through it. Bags are pooled in
  // the client, LookAheadOptions::pull replaces wire_type and deadline, and one thread calls
  // everything. Of the same client; outlives the Embeddings. Null: Forward pulls.
  LookAhead* look_ahead = nullptr;
};

struct EmbeddingOutput {
  struct Feature {
    std::string name;
    uint32_t dim = 0;
    Pooling pooling = Pooling::kSum;
    uint32_t column = 0;  // pooled: where its dim columns begin in `values`
    // kNone only: one row per id of the feature, and the lengths of its samples.
    std::vector<float> sequence;
    std::vector<uint32_t> lengths;
  };
  uint32_t batch_size = 0;
  uint32_t columns = 0;           // sum of the pooled features' dims
  std::vector<float> values;      // batch_size x columns, row-major
  std::vector<Feature> features;  // in the order of EmbeddingFeature
  uint64_t out_of_bounds = 0;     // ids that a table's bounds mode `zero` replaced with zeros
  // For Backward, by feature, of max-pooled features: for each element of each bag (of a variable
  // batch: of the feature's own bags), the position in the bag of the id that it comes from.
  std::vector<std::vector<uint32_t>> arg_max;

  const Feature* Find(const std::string& name) const;  // null: no such output
};

// Gradients of the loss, in the shapes of Forward's outputs.
struct OutputGradients {
  absl::Span<const float> values;                  // batch_size x columns
  std::vector<absl::Span<const float>> sequences;  // one per feature; empty unless kNone
};

// Gradients of rows, each id once, in the order of first appearance.
struct SparseGradient {
  const Table* table = nullptr;
  std::vector<uint64_t> ids;
  std::vector<float> gradients;  // ids.size() x dim
};

class Embeddings {
 public:
  // InvalidArgument names the feature that has no name, no table, a table of another client, an
  // unknown pooling, or the output name of another feature. `client` outlives the Embeddings.
  static absl::StatusOr<std::unique_ptr<Embeddings>> Create(Client* client,
                                                            std::vector<EmbeddingFeature> features,
                                                            const EmbeddingOptions& options = {});
  virtual ~Embeddings() = default;

  // Needs EmbeddingOptions::look_ahead, whose Announce it calls; refuses what Forward refuses.
  virtual absl::Status Announce(const JaggedBatch& batch) = 0;

  // `batch` must have every feature's key; keys that no feature names are ignored. The call is
  // refused as a whole, and nothing is sent, where the batch is not valid, a feature with pooling
  // none or max has weights, or an id is out of bounds in a table of bounds mode `error`.
  // With EmbeddingOptions::look_ahead, `batch` is the one that was announced first and not taken.
  virtual Future<absl::Status> Forward(const JaggedBatch& batch, EmbeddingOutput* output) = 0;

  // One push of one step. Gradients of the outputs become gradients of rows; those of one id are
  // summed over all features of a table in the order of first appearance (features in the list's
  // order). `batch` and `output` are those of Forward.
  virtual Future<PushResult> Backward(uint64_t step, const JaggedBatch& batch,
                                      const EmbeddingOutput& output,
                                      const OutputGradients& gradients,
                                      const PushOptions& options = {}) = 0;

  // Returns the gradients that Backward would push: for tables with optimizer `none`, and for
  // GradientAccumulator. Tables are in the order of the features.
  virtual absl::StatusOr<std::vector<SparseGradient>> Gradients(
      const JaggedBatch& batch, const EmbeddingOutput& output,
      const OutputGradients& gradients) = 0;

  // The gradient of the loss for each weight of the batch, in the order of its ids: FBGEMM's
  // gradient of indice_weights. A key that several features read gets the sum. The rows are pulled
  // again, so call it before Backward. InvalidArgument: the batch has no weights. `batch` and the
  // spans of `gradients` are used until the Future is ready.
  virtual Future<absl::Status> WeightGradients(const JaggedBatch& batch,
                                               const OutputGradients& gradients,
                                               std::vector<float>* weight_gradients) = 0;
};

// Sums the sparse gradients of several micro-batches, in the order of Add; PushGradients then
// pushes them as one step. Thread-compatible.
class GradientAccumulator {
 public:
  GradientAccumulator();
  ~GradientAccumulator();
  // InvalidArgument, and nothing is added, where a gradient has no table or is not ids x dim
  // floats, or where `scale` is not finite.
  absl::Status Add(absl::Span<const SparseGradient> gradients, float scale = 1.0f);
  // Returns everything added since the last Take, each id once, and starts again with nothing.
  std::vector<SparseGradient> Take();
  uint32_t added() const;  // calls of Add since the last Take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Pushes sparse gradients: clips them, then calls Client::Push with one feature per table.
Future<PushResult> PushGradients(Client* client, uint64_t step,
                                 absl::Span<const SparseGradient> gradients,
                                 const PushOptions& options = {});

// The L2 norm over all rows of all tables, summed in order in double precision.
double GlobalNorm(absl::Span<const SparseGradient> gradients);

}  // namespace hotbed

#endif  // HOTBED_EMBEDDING_H_
