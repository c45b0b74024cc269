// The part of one shard in a call of the output layer. Rows are read by pulls of the host, block by
// block, whichever tier they are in, and computed with on the caller's thread, not on the shard's
// strand. The gradients of a block's rows are pushed through the host as a client's push is: they
// are one record of the log, with the session's sequence. So recovery, replication and moves know
// nothing of the output layer, and a call that is sent again applies nothing twice.
//
// Thread-compatible; blocks.
#ifndef HOTBED_SERVER_OUTPUT_SOFTMAX_SHARD_H_
#define HOTBED_SERVER_OUTPUT_SOFTMAX_SHARD_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/ids.h"
#include "proto/softmax.pb.h"
#include "server/host/shard_host.h"
#include "server/kernels/matrix_kernels.h"
#include "server/output/softmax_input.h"

namespace hotbed {

// What shards add to the answer of a call.
struct SoftmaxSums {
  explicit SoftmaxSums(const SoftmaxInput& input);
  void Add(const SoftmaxSums& other);

  std::vector<float> maxima;
  std::vector<double> sums;
  std::vector<double> totals;
  std::vector<float> target_logits;
  std::vector<double> hidden_gradient;
  std::vector<float> logits;  // of one shard, for each token its rows; they are not added up
};

class SoftmaxShard {
 public:
  // All outlive it. `deadline_ns`: Clock::NowNs() scale.
  SoftmaxShard(ShardHost* host, const SoftmaxInput* input, const v1::SoftmaxRequest* request,
               int64_t deadline_ns);
  ~SoftmaxShard();

  // Adds to `sums` and fills in `reply`; where its code is not OK, `sums` must not be used. The
  // memory of the kernels stays for the next shard.
  void Run(const v1::SoftmaxShard& shard, SoftmaxSums* sums, v1::SoftmaxShardReply* reply);

 private:
  struct BlockPull;
  struct BlockPush;

  bool ReadRows(const v1::SoftmaxShard& shard, uint64_t first, uint32_t rows,
                v1::SoftmaxShardReply* reply);
  void ComputeLogits(uint32_t rows);
  // `at` is the place of the block's first row in the shard's range of `all` rows.
  void CopyLogits(uint64_t at, uint64_t all, uint32_t rows, SoftmaxSums* sums) const;
  void AddStatistics(uint64_t first, uint32_t rows, SoftmaxSums* sums);
  void ComputeLogitGradients(uint64_t first, uint32_t rows);
  void AddHiddenGradient(uint32_t rows, SoftmaxSums* sums);
  // The gradients of the block's rows that are not zero; null: there are none.
  std::unique_ptr<BlockPush> GradientsOf(const TableSpec& table, uint64_t first, uint32_t rows);
  void AddGradients(uint64_t first, uint32_t rows, std::vector<float>* gradients,
                    std::vector<uint8_t>* wanted) const;
  // False: all gradients of the block are zero, and nothing is pushed.
  bool PushBlock(const v1::SoftmaxShard& shard, const std::shared_ptr<Shard>& held, uint64_t first,
                 uint32_t rows, uint64_t* prev_seq);
  // Waits until at most `left` pushes are in flight. False: one was refused.
  bool AwaitPushes(size_t left, v1::SoftmaxShardReply* reply);
  void Fill(const SegmentResult& result, ShardId shard, v1::SoftmaxShardReply* reply) const;

  ShardHost* const host_;
  const SoftmaxInput& input_;
  const v1::SoftmaxRequest& request_;
  const int64_t deadline_ns_;
  const MatrixKernelSet& kernels_ = MatrixKernels();
  std::vector<uint64_t> ids_;
  std::vector<float> rows_;
  std::vector<float> logits_;
  std::vector<float> of_hidden_;
  std::unique_ptr<float[], void (*)(float*)> scratch_;
  std::deque<std::unique_ptr<BlockPush>> pushes_;  // in flight, in order
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_OUTPUT_SOFTMAX_SHARD_H_
