// Embeddings over a Client: binds batches to tables, pulls what they need in one call, pools, and
// turns gradients of outputs into one push.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/batch/dedupe.h"
#include "client/embedding/embedding_batch.h"
#include "client/net/client_context.h"
#include "hotbed/embedding.h"

namespace hotbed {

// What a call needs while it runs, kept for the next one. Thread-safe.
template <typename Scratch>
class FreeList {
 public:
  std::unique_ptr<Scratch> Take() {
    absl::MutexLock lock(&mu_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void GiveBack(std::unique_ptr<Scratch> scratch) {
    absl::MutexLock lock(&mu_);
    if (free_.size() < kKept) free_.push_back(std::move(scratch));
  }

 private:
  static constexpr size_t kKept = 4;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Scratch>> free_ ABSL_GUARDED_BY(mu_);
};

struct ForwardScratch {
  // The distinct rows that a table's pooled features read.
  struct TableRows {
    std::vector<uint64_t> ids;
    std::unique_ptr<float[]> rows;  // not filled with zeros: every row is answered
    uint64_t capacity = 0;          // of rows, in floats
    std::vector<uint32_t> index;    // of each id of these features, one feature behind the other
  };
  std::vector<BoundFeature> bound;
  std::vector<TableRows> tables;
  std::vector<uint64_t> first_input;  // of each feature, in its table's index
  std::vector<uint8_t> on_servers;    // of each table: its bags are pooled there
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
  // `features` are checked and have their outputs' names. `wire_type` is that of rows.
  EmbeddingsImpl(Client* client, ClientCounters* counters, RowType wire_type,
                 std::vector<EmbeddingFeature> features, const EmbeddingOptions& options);

  Future<absl::Status> Forward(const JaggedBatch& batch, EmbeddingOutput* output) override;
  Future<PushResult> Backward(uint64_t step, const JaggedBatch& batch,
                              const EmbeddingOutput& output, const OutputGradients& gradients,
                              const BackwardOptions& options) override;
  absl::StatusOr<std::vector<SparseGradient>> Gradients(const JaggedBatch& batch,
                                                        const EmbeddingOutput& output,
                                                        const OutputGradients& gradients) override;

 private:
  void ShapeOutput(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                   EmbeddingOutput* output) const;
  // One pull of all that the bound features need.
  void PlanPulls(EmbeddingOutput* output, ForwardScratch* scratch) const;
  // The distinct rows of a table's pooled features; how many ids these are with duplicates.
  uint64_t FindRows(size_t table, ForwardScratch* scratch) const;
  bool PoolsOnServers(size_t table, const ForwardScratch& scratch) const;
  PullFeature PooledPull(size_t feature, const BoundFeature& bound, EmbeddingOutput* output) const;
  void PoolOutput(const ForwardScratch& scratch, EmbeddingOutput* output) const;
  absl::Status CheckGradients(absl::Span<const BoundFeature> bound, uint32_t batch_size,
                              const EmbeddingOutput& output,
                              const OutputGradients& gradients) const;
  // scratch->features: the push, with nothing an id but where its gradient is.
  absl::Status DescribePush(const JaggedBatch& batch, const EmbeddingOutput& output,
                            const OutputGradients& gradients, BackwardScratch* scratch) const;

  Client* const client_;
  ClientCounters* const counters_;
  const RowType wire_type_;
  const std::vector<EmbeddingFeature> features_;
  const EmbeddingOptions options_;
  std::vector<uint32_t> columns_;     // where each pooled feature's begin; then their sum
  std::vector<const Table*> tables_;  // each once, in the order of the features
  std::vector<size_t> table_of_;      // of each feature, index into tables_

  FreeList<ForwardScratch> forward_;
  FreeList<BackwardScratch> backward_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDINGS_IMPL_H_
