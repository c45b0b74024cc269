// Embeddings over a Client: binds batches to tables, pulls the rows in one call, pools, and turns
// gradients of outputs into one push. Thread-safe.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/batch/dedupe.h"
#include "client/batch/free_list.h"
#include "client/embedding/embedding_batch.h"
#include "client/net/client_counters.h"
#include "hotbed/embedding.h"

namespace hotbed {

struct ForwardScratch {
  // The distinct rows that a table's pooled features read.
  struct TableRows {
    std::vector<uint64_t> ids;
    std::unique_ptr<float[]> rows;  // not zero-filled: the answers cover every row
    uint64_t capacity = 0;          // of rows, in floats
    std::vector<uint32_t> index;    // of each id of these features, feature after feature
  };
  std::vector<BoundFeature> bound;
  std::vector<TableRows> tables;
  std::vector<uint64_t> first_input;  // of each feature, in its table's index
  std::vector<uint8_t> on_servers;    // by table: its bags are pooled on the servers
  // By feature, bags x dim: the pooled bags of a variable batch, before the samples get them.
  std::vector<std::vector<float>> shared;
  std::vector<IdsPart> parts;
  std::vector<PullFeature> pulls;
  Deduper deduper;
};

struct BackwardScratch {
  std::vector<BoundFeature> bound;
  std::vector<BagGradient> bags;           // by feature
  std::vector<std::vector<float>> shared;  // by feature: gradients of a variable batch's bags
  std::vector<PushFeature> features;
  Deduper deduper;
  UniqueIds unique;  // of one feature
};

class EmbeddingsImpl final : public Embeddings {
 public:
  // `features` are checked and have the names of their outputs. `wire_type` is that of rows.
  EmbeddingsImpl(Client* client, ClientCounters* counters, RowType wire_type,
                 std::vector<EmbeddingFeature> features, const EmbeddingOptions& options);

  absl::Status Announce(const JaggedBatch& batch) override;
  Future<absl::Status> Forward(const JaggedBatch& batch, EmbeddingOutput* output) override;
  Future<PushResult> Backward(uint64_t step, const JaggedBatch& batch,
                              const EmbeddingOutput& output, const OutputGradients& gradients,
                              const PushOptions& options) override;
  absl::StatusOr<std::vector<SparseGradient>> Gradients(const JaggedBatch& batch,
                                                        const EmbeddingOutput& output,
                                                        const OutputGradients& gradients) override;
  Future<absl::Status> WeightGradients(const JaggedBatch& batch, const OutputGradients& gradients,
                                       std::vector<float>* weight_gradients) override;

 private:
  static constexpr size_t kScratchKept = 4;

  void ShapeOutput(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                   EmbeddingOutput* output) const;
  // Describes one pull of all rows and bags that the bound features need.
  void PlanPulls(EmbeddingOutput* output, ForwardScratch* scratch) const;
  absl::Status Bind(const JaggedBatch& batch, std::vector<BoundFeature>* bound) const;
  // Takes the planned pulls from the look-ahead.
  absl::Status TakeRows(const ForwardScratch& scratch) const;
  // Finds the distinct rows of a table's pooled features. Returns the number of ids with
  // duplicates.
  uint64_t FindRows(size_t table, ForwardScratch* scratch) const;
  bool PoolsOnServers(size_t table, const ForwardScratch& scratch) const;
  // Where a feature's bags are pooled to: the output, or the scratch of a variable batch.
  struct BagRows {
    float* rows = nullptr;
    uint64_t stride = 0;
  };
  BagRows BagRowsOf(size_t feature, ForwardScratch* scratch, EmbeddingOutput* output) const;
  PullFeature PooledPull(size_t feature, ForwardScratch* scratch, EmbeddingOutput* output) const;
  void PoolOutput(ForwardScratch* scratch, EmbeddingOutput* output) const;
  // Where the gradients of a feature's bags are: in those of the outputs, or, of a variable batch,
  // in `shared`, summed over the samples of each bag.
  struct BagGradients {
    const float* rows = nullptr;
    uint64_t stride = 0;
  };
  BagGradients BagGradientsOf(size_t feature, const BoundFeature& bound,
                              absl::Span<const float> values, std::vector<float>* shared) const;
  absl::Status CheckGradients(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                              const EmbeddingOutput& output,
                              const OutputGradients& gradients) const;
  // InvalidArgument names a composed table whose gradients mean something by whole bags only.
  absl::Status CheckSumsById() const;
  // Sets scratch->features to the push, which refers to the gradient rows and copies none.
  absl::Status DescribePush(const JaggedBatch& batch, const EmbeddingOutput& output,
                            const OutputGradients& gradients, BackwardScratch* scratch) const;

  Client* const client_;
  ClientCounters* const counters_;
  const RowType wire_type_;
  const std::vector<EmbeddingFeature> features_;
  const EmbeddingOptions options_;
  std::vector<uint32_t> columns_;     // first column of each feature; then the number of columns
  std::vector<const Table*> tables_;  // each once, in the order of the features
  std::vector<size_t> table_of_;      // of each feature, index into tables_

  FreeList<ForwardScratch> forward_{kScratchKept};
  FreeList<BackwardScratch> backward_{kScratchKept};
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_
