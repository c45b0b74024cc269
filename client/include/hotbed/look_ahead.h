// LookAhead: the rows of the next batches, pulled before they are needed and kept up to date with
// this trainer's own pushes.
//
//   auto ahead = hotbed::LookAhead::Create(client);
//   (*ahead)->Announce(features_of_batch_1);            // pulls in the background
//   (*ahead)->Announce(features_of_batch_2);
//   for each step:
//     (*ahead)->Announce(features of a later batch);
//     (*ahead)->Take(buffers);                          // the oldest batch that was announced
//     ...                                               // the model computes gradients
//     (*ahead)->Push(step, gradients);                  // instead of Client::Push
//
// Take hands out the rows that a pull at the time of Take would give, as far as this trainer's own
// pushes go: rows that a push through this LookAhead has changed since they were pulled are pulled
// again, those of the oldest batch as soon as the push is acknowledged and a call of this object
// notices it, the others in Take. With `own_pushes_behind` n, the last n pushes may be missing, and
// Take does not wait for them. Of other trainers' pushes, everything that was acknowledged before
// the pull of the batch began is there. A push that ended kIndeterminate counts as over, although
// Client::Retry may still apply it.
//
// A batch is pulled when it is announced if its rows fit into what bytes_max leaves. Otherwise it
// waits until batches before it are taken, at most until its own Take, which pulls any batch.
//
// Rows of bounded and synchronous tables may not be older than their step allows (docs/tables.md,
// Consistency of training), and Take hands out none that are: call it after BeginStep. The batches
// announced are taken to be those of the next steps, `batches_per_step` each. Rows of bounded
// tables are pulled early for the steps that the staleness already allows, the others as soon as a
// call of this object finds that all trainers have ended enough steps. Rows of synchronous tables
// are pulled by the first call after EndStep of the step before. What is then used in a later step
// than expected is pulled again in Take, like everything before the first BeginStep.
//
// Embeddings (hotbed/embedding.h) pool announced batches: EmbeddingOptions::look_ahead.
//
// Thread rule: one thread calls everything. The client outlives the LookAhead, whose destructor
// waits for its pulls, at most until their deadlines.
#ifndef HOTBED_LOOK_AHEAD_H_
#define HOTBED_LOOK_AHEAD_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hotbed/client.h"
#include "hotbed/future.h"

namespace hotbed {

struct LookAheadOptions {
  uint32_t batches_max = 8;           // announced and not taken; 1 to 1024
  uint64_t bytes_max = 256ull << 20;  // of rows pulled early, each row of a batch once
  uint32_t own_pushes_behind = 0;     // pushes that Take need not wait for
  uint32_t batches_per_step = 1;      // whose gradients are accumulated; 1 to 1024
  PullOptions pull;                   // of every pull
};

struct LookAheadFeature {
  const Table* table = nullptr;
  absl::Span<const uint64_t> ids;  // copied by Announce; duplicates are allowed
};

// Counters since Create. `rows` is the sum of the next three: the distinct rows of batches taken.
struct LookAheadStats {
  uint64_t batches = 0;
  uint64_t rows = 0;
  uint64_t rows_ready = 0;      // pulled early, and not changed since
  uint64_t rows_refreshed = 0;  // changed by own pushes, and pulled again before Take
  uint64_t rows_late = 0;       // pulled in Take
};

class LookAhead {
 public:
  // InvalidArgument names an option that is out of range, its value and the range.
  static absl::StatusOr<std::unique_ptr<LookAhead>> Create(Client* client,
                                                           const LookAheadOptions& options = {});
  virtual ~LookAhead() = default;

  // Begins to pull a batch, or leaves it waiting for room. ResourceExhausted: batches_max would be
  // exceeded; take a batch first. InvalidArgument and OutOfRange as Client::Pull. On an error
  // nothing is announced.
  virtual absl::Status Announce(absl::Span<const LookAheadFeature> features) = 0;
  // Hands out the oldest batch: rows[f] receives ids.size() x dim floats of its feature f. Blocks
  // until they are there. FailedPrecondition: no batch is announced. InvalidArgument: not one
  // buffer of that size per feature; the batch stays. After another error, which is that of a
  // pull, the batch is gone and the buffers are unspecified.
  virtual absl::Status Take(absl::Span<const absl::Span<float>> rows) = 0;
  // Client::Push; the rows of announced batches that it changes are pulled again.
  virtual Future<PushResult> Push(uint64_t step, absl::Span<const PushFeature> features,
                                  const PushOptions& options = {}) = 0;
  virtual LookAheadStats Stats() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_LOOK_AHEAD_H_
