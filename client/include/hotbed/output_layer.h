// A table as the output layer of a model: each row is one class, a word of the vocabulary say, and
// the logit of a class is the product of its row with the hidden state (docs/output_layer.md).
//
//   auto layer = hotbed::OutputLayer::Make(client.get(), table, {.label_smoothing = 0.1f});
//   auto pass = (*layer)->Forward(hidden, targets);       // hidden: tokens x dim
//   Use((*pass)->losses());                               // one per token
//   (*pass)->Backward(scales, hidden_gradient);           // of the sum of scales[t] * losses[t]
//   (*pass)->Push(step);                                  // the gradients of the rows
//
// Logits are computed where the rows are, shard by shard, and never travel: for each token a server
// answers the largest logit, the sum of exponentials and the logit of the target. So the bytes on
// the wire depend on tokens and dim, and not on the rows of the table. The server computes the
// gradients of the rows, too, and pushes them itself: through the log, under the session of the
// layer, with the table's optimizer.
//
// The table is bounded and has no column slices; the layer does not train synchronous tables. The
// loss is that of torch.nn.functional.cross_entropy, per token, with what the options add.
#ifndef HOTBED_OUTPUT_LAYER_H_
#define HOTBED_OUTPUT_LAYER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hotbed/client.h"

namespace hotbed {

// A loss that keeps the sum Z of a token's exponentials near 1.
//   kLogZ         z_loss * (log Z)^2 is added to the token's loss.
//   kShiftedMean  Z is the sum of exp(logit - largest logit), which counts as a constant, and the
//                 mean of z_loss * (log Z)^2 over the tokens is added to the loss of each, as
//                 mesh-transformer-jax does.
enum class ZLoss : uint8_t { kLogZ = 0, kShiftedMean = 1 };

struct OutputLayerOptions {
  // The last column of a row is the bias of its logit, and hidden states have one element less than
  // rows. A row is in one shard, so its bias is added once.
  bool bias = false;
  float label_smoothing = 0.0f;  // 0 to 1: this part of the target is spread over all classes
  float z_loss = 0.0f;           // 0 or more
  ZLoss z_loss_of = ZLoss::kLogZ;
  // Tokens with this target have no loss and no gradient.
  int64_t ignored_target = -100;
  absl::Duration deadline = absl::ZeroDuration();  // of each call; zero: the client's
};

struct OutputPushOptions {
  bool has_learning_rate = false;
  float learning_rate = 0.0f;   // else the table's own
  float gradient_scale = 1.0f;  // of the layer's gradients
  // The rest of the gradient of a table that is also looked up by the model (tied embeddings): the
  // servers add it to that of the output layer before the optimizer sees either. Gradients of equal
  // ids are summed; dim floats each.
  absl::Span<const uint64_t> added_ids;
  const float* added_gradients = nullptr;
};

constexpr uint64_t kOutputRowsMax = 512ull * ((1 << 20) - 1);  // of the table
constexpr uint64_t kOutputLogitBytesMax = 8 << 20;             // of one token
constexpr size_t kOutputTokensMax = 16'384;                    // of a call that are not ignored
constexpr uint64_t kOutputHiddenBytesMax = 8 << 20;            // of them

// One batch on its way through the layer, which outlives it. Thread-compatible.
class OutputPass {
 public:
  virtual ~OutputPass() = default;
  // One per token, ignored ones with 0.
  virtual absl::Span<const float> losses() const = 0;
  // 1 where no class has a larger logit than the target; 0 for ignored tokens.
  virtual absl::Span<const uint8_t> correct() const = 0;
  virtual uint64_t tokens() const = 0;  // that are not ignored
  // The mean loss of these in bits, without a z-loss; 0 without tokens.
  virtual double bits_per_token() const = 0;
  // The gradient of the sum of scales[t] * losses[t] with respect to the hidden states, which has
  // their size. Blocks.
  virtual absl::Status Backward(absl::Span<const float> scales, float* hidden_gradient) = 0;
  // Pushes the gradients of the rows for the scales of Backward. Steps of a layer grow from push to
  // push. Blocks until all shards have applied it; after DeadlineExceeded some may have, and
  // another call of this pass goes on where they are.
  virtual absl::Status Push(uint64_t step, const OutputPushOptions& options = {}) = 0;
  // Bytes of all messages of the pass, in both directions, without gRPC's frames.
  virtual uint64_t wire_bytes() const = 0;
};

// Thread-safe.
class OutputLayer {
 public:
  // `client` outlives it. InvalidArgument names the option or the table's property, and what is
  // allowed.
  static absl::StatusOr<std::unique_ptr<OutputLayer>> Make(Client* client, const Table* table,
                                                           const OutputLayerOptions& options = {});
  virtual ~OutputLayer() = default;
  // `hidden` has one row per target, of `width()` elements. InvalidArgument: a target is no row of
  // the table, an element is not finite, or a size is not allowed. Blocks.
  virtual absl::StatusOr<std::unique_ptr<OutputPass>> Forward(
      absl::Span<const float> hidden, absl::Span<const int64_t> targets) = 0;
  // All logits of hidden states of `width()` elements each: for each, one per row of the table.
  // They come in as many calls as their size takes; for a look at a model, not for training.
  virtual absl::StatusOr<std::vector<float>> Logits(absl::Span<const float> hidden) = 0;
  virtual uint32_t width() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_OUTPUT_LAYER_H_
