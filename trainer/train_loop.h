// Training with worker threads that pull, compute and push, and the evaluation afterwards.
//
// Each worker owns a RowSource and keeps two batches in flight: the rows of the next batch are
// pulled while a batch is computed, and gradients travel while the next batch is computed. Updates
// of the workers are asynchronous; a row is at most a few steps old.
#ifndef HOTBED_TRAINER_TRAIN_LOOP_H_
#define HOTBED_TRAINER_TRAIN_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hotbed/push_size.h"
#include "trainer/batch.h"
#include "trainer/dataset.h"
#include "trainer/fm_model.h"
#include "trainer/quality.h"
#include "trainer/row_source.h"

namespace hotbed {

struct TrainOptions {
  FieldLayout layout;
  FmShape shape;
  int bias_table = -1;  // the table that holds the bias as weight 0 of row bias_id; -1: no bias
  uint64_t bias_id = 0;
  int epochs = 1;
  size_t batch_size = 1024;  // most examples of a push
  int parts = 1;             // processes that share the data at the same time
  StableExamples stable;
  float learning_rate = 0.05f;
  float learning_rate_decay = 1.0f;  // factor per epoch
  uint64_t first_step = 0;
};

// A snapshot of the counters of all workers, for the progress line.
struct TrainProgress {
  int epoch = 0;
  uint64_t examples = 0;
  uint64_t rows_pulled = 0;
  uint64_t rows_pushed = 0;
  uint64_t trainers = 0;  // of all processes; the most at a time, as far as known
  double loss = 0;        // moving average over examples
  double seconds = 0;
};

struct TrainReport {
  TrainProgress total;
  std::vector<double> epoch_loss;  // mean training loss of each epoch
  LookAheadStats look_ahead;       // of all sources; zeros where rows are not refreshed
};

struct EvalReport {
  uint64_t examples = 0;
  double auc = 0;       // logistic
  double log_loss = 0;  // logistic, nats
  double rmse = 0;      // squared
};

using SourceFactory = std::function<absl::StatusOr<std::unique_ptr<RowSource>>(int worker)>;

// Trains with `workers` threads. Calls `progress` on this thread about five times per second, and
// once at the end.
absl::StatusOr<TrainReport> Train(const TrainOptions& options, const Dataset& data, int workers,
                                  const SourceFactory& open_source,
                                  const std::function<void(const TrainProgress&)>& progress);

// Scores `part` of `data` with inference lookups. Predicted ratings are clamped to
// [label_min, label_max]. `predicted` gets the logit or rating of each example, in the order of the
// file; it may be null.
absl::StatusOr<EvalReport> Evaluate(const TrainOptions& options, const Dataset& data,
                                    Dataset::Part part, float label_min, float label_max,
                                    RowReader* reader,
                                    const std::function<void(float)>& predicted = nullptr);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_TRAIN_LOOP_H_
