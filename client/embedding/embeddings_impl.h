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
  std::vector<IdsPart> parts;
  std::vector<PullFeature> pulls;
  Deduper deduper;
};

struct BackwardScratch {
  std::vector<BoundFeature> bound;
  std::vector<BagGradient> bags;  // by feature
  std::vector<PushFeature> features;
  Deduper deduper;
};

class EmbeddingsImpl final : public Embeddings {
 public:
  // `features` are checked and have the names of their outputs. `wire_type` is that of rows.
  EmbeddingsImpl(Client* client, ClientCounters* counters, RowType wire_type,
                 std::vector<EmbeddingFeature> features, const EmbeddingOptions& options);

  Future<absl::Status> Forward(const JaggedBatch& batch, EmbeddingOutput* output) override;
  Future<PushResult> Backward(uint64_t step, const JaggedBatch& batch,
                              const EmbeddingOutput& output, const OutputGradients& gradients,
                              const PushOptions& options) override;
  absl::StatusOr<std::vector<SparseGradient>> Gradients(const JaggedBatch& batch,
                                                        const EmbeddingOutput& output,
                                                        const OutputGradients& gradients) override;

 private:
  static constexpr size_t kScratchKept = 4;

  void ShapeOutput(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                   EmbeddingOutput* output) const;
  // Describes one pull of all rows and bags that the bound features need.
  void PlanPulls(EmbeddingOutput* output, ForwardScratch* scratch) const;
  // Finds the distinct rows of a table's pooled features. Returns the number of ids with
  // duplicates.
  uint64_t FindRows(size_t table, ForwardScratch* scratch) const;
  bool PoolsOnServers(size_t table, const ForwardScratch& scratch) const;
  PullFeature PooledPull(size_t feature, const BoundFeature& bound, EmbeddingOutput* output) const;
  void PoolOutput(const ForwardScratch& scratch, EmbeddingOutput* output) const;
  absl::Status CheckGradients(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                              const EmbeddingOutput& output,
                              const OutputGradients& gradients) const;
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
