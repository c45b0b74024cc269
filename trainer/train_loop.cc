#include "trainer/train_loop.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "trainer/training.h"

namespace hotbed {
namespace {

constexpr int kSlots = 3;  // one computes, one is pulled, one is pushed
constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);

// The state that all workers of a run share.
struct SharedProgress {
  std::atomic<uint64_t> taken{0};  // examples that workers have begun, over all epochs
  absl::Mutex mu;
  TrainProgress total ABSL_GUARDED_BY(mu);  // `loss`: exponential mean over batches
  double epoch_loss ABSL_GUARDED_BY(mu) = 0;
  uint64_t epoch_examples ABSL_GUARDED_BY(mu) = 0;
  absl::Status error ABSL_GUARDED_BY(mu);

  void Fail(absl::Status status) {
    absl::MutexLock lock(&mu);
    if (error.ok()) error = std::move(status);
  }
  bool failed() {
    absl::MutexLock lock(&mu);
    return !error.ok();
  }
};

// A batch in flight: its rows, its gradients and the calls that use them.
struct Slot : BatchCalls {
  Batch batch;
  float rate = 1;         // factor of the learning rate
  uint64_t trainers = 1;  // of all processes
  std::vector<std::vector<float>> rows, gradients;
  std::vector<float> bias_row, bias_gradient, predictions;
};

std::vector<RowColumn> ColumnsOf(const TrainOptions& options, Slot* slot) {
  std::vector<RowColumn> columns;
  for (int f = 0; f < options.layout.fields(); ++f) {
    slot->rows[f].resize(slot->batch.size() * options.shape.dim);
    slot->gradients[f].resize(slot->rows[f].size());
    columns.push_back({options.layout.table_of_field[f], slot->batch.ids[f], slot->rows[f].data(),
                       slot->gradients[f].data()});
  }
  if (options.bias_table >= 0) {
    slot->bias_row.resize(options.shape.dim);
    slot->bias_gradient.resize(options.shape.dim);
    columns.push_back({options.bias_table, absl::MakeConstSpan(&options.bias_id, 1),
                       slot->bias_row.data(), slot->bias_gradient.data()});
  }
  return columns;
}

float BiasOf(const TrainOptions& options, const Slot& slot) {
  return options.bias_table >= 0 ? slot.bias_row[0] : 0.0f;
}

std::vector<const float*> RowPointers(const Slot& slot) {
  std::vector<const float*> pointers;
  for (const auto& rows : slot.rows) pointers.push_back(rows.data());
  return pointers;
}

// One thread's share of one epoch.
class Worker {
 public:
  Worker(const TrainOptions& options, size_t workers, Dataset::Epoch* epoch, RowSource* source,
         uint64_t* step, float learning_rate, SharedProgress* shared)
      : options_(options),
        workers_(workers),
        epoch_(epoch),
        source_(source),
        step_(step),
        learning_rate_(learning_rate),
        shared_(shared),
        counted_{source->rows_pulled(), source->rows_pushed()} {
    for (Slot& slot : slots_) {
      slot.rows.resize(options.layout.fields());
      slot.gradients.resize(options.layout.fields());
    }
  }

  absl::Status Run() {
    HOTBED_ASSIGN_OR_RETURN(bool more, StartPull(0));
    for (int current = 0; more; current = (current + 1) % kSlots) {
      const absl::StatusOr<bool> next = StartPull((current + 1) % kSlots);
      if (!next.ok()) {
        Drain().IgnoreError();
        return next.status();
      }
      if (absl::Status s = Compute(&slots_[current]); !s.ok()) {
        Drain().IgnoreError();
        return s;
      }
      more = *next && !shared_->failed();
    }
    return Drain();
  }

 private:
  // Takes the next batch into the slot and pulls its rows. False when the epoch is over.
  absl::StatusOr<bool> StartPull(int index) {
    Slot& slot = slots_[index];
    HOTBED_RETURN_IF_ERROR(slot.FinishPush());
    if (chunk_next_ >= chunk_.size()) {
      do {
        HOTBED_ASSIGN_OR_RETURN(const bool more, epoch_->NextChunk(&chunk_));
        if (!more) return false;
      } while (chunk_.size() == 0);
      chunk_next_ = 0;
    }
    slot.trainers = std::max(workers_ * options_.parts, source_->Trainers());
    const uint64_t trained = shared_->taken * slot.trainers / workers_;
    const PushSize size = PlanPush(options_.stable, options_.batch_size, slot.trainers, trained);
    const size_t limit = std::min(chunk_.size(), chunk_next_ + size.examples);
    slot.batch.Reset(options_.layout.fields());
    AppendExamples(chunk_, chunk_next_, limit, &slot.batch);
    shared_->taken += limit - chunk_next_;
    chunk_next_ = limit;
    slot.rate = size.rate;
    slot.pull = source_->Pull(ColumnsOf(options_, &slot));
    return true;
  }

  absl::Status Compute(Slot* slot) {
    HOTBED_RETURN_IF_ERROR(slot->FinishPull());
    HOTBED_RETURN_IF_ERROR(source_->Take(ColumnsOf(options_, slot)));
    const size_t count = slot->batch.size();
    slot->predictions.resize(count);
    const std::vector<const float*> rows = RowPointers(*slot);
    std::vector<float*> gradients;
    for (auto& column : slot->gradients) gradients.push_back(column.data());
    FmPredict(options_.shape, rows, BiasOf(options_, *slot), count, slot->predictions.data());
    float bias_gradient = 0;
    const double loss = FmGradient(options_.shape, rows, slot->batch.labels.data(),
                                   slot->predictions.data(), count, gradients, &bias_gradient);
    if (options_.bias_table >= 0) {
      std::fill(slot->bias_gradient.begin(), slot->bias_gradient.end(), 0.0f);
      slot->bias_gradient[0] = bias_gradient;
    }
    slot->push = source_->Push((*step_)++, ColumnsOf(options_, slot), learning_rate_ * slot->rate);
    Account(*slot, loss);
    return absl::OkStatus();
  }

  // Waits for all calls that still use the slots' buffers.
  absl::Status Drain() {
    absl::Status first;
    for (Slot& slot : slots_) {
      first.Update(slot.FinishPull());
      first.Update(slot.FinishPush());
    }
    absl::MutexLock lock(&shared_->mu);
    counted_.AddTo(&shared_->total, *source_);  // pushes in flight after the last batch
    return first;
  }

  void Account(const Slot& slot, double loss) {
    const size_t count = slot.batch.size();
    absl::MutexLock lock(&shared_->mu);
    TrainProgress& total = shared_->total;
    counted_.AddTo(&total, *source_);
    total.examples += count;
    total.trainers = std::max(total.trainers, slot.trainers);
    shared_->epoch_loss += loss;
    shared_->epoch_examples += count;
    const double mean = loss / static_cast<double>(count);
    total.loss = total.loss == 0 ? mean : 0.98 * total.loss + 0.02 * mean;
  }

  const TrainOptions& options_;
  const uint64_t workers_;  // of this process
  Dataset::Epoch* epoch_;
  RowSource* source_;
  uint64_t* step_;
  const float learning_rate_;
  SharedProgress* shared_;
  CountedRows counted_;
  std::array<Slot, kSlots> slots_;
  Batch chunk_;
  size_t chunk_next_ = 0;
};

// Runs one epoch on all workers and reports while they run.
void RunEpoch(const TrainOptions& options, const Dataset& data, int epoch_index,
              float learning_rate, const std::vector<std::unique_ptr<RowSource>>& sources,
              std::vector<uint64_t>* steps, SharedProgress* shared,
              const std::function<void()>& report) {
  Dataset::Epoch epoch(&data, Dataset::Part::kTrain, epoch_index);
  const auto work = [&](int w) {
    Worker worker(options, sources.size(), &epoch, sources[w].get(), &(*steps)[w], learning_rate,
                  shared);
    if (absl::Status s = worker.Run(); !s.ok()) shared->Fail(std::move(s));
  };
  RunTrainers(static_cast<int>(sources.size()), kProgressInterval, work, report);
}

}  // namespace

absl::StatusOr<TrainReport> Train(const TrainOptions& options, const Dataset& data, int workers,
                                  const SourceFactory& open_source,
                                  const std::function<void(const TrainProgress&)>& progress) {
  std::vector<std::unique_ptr<RowSource>> sources;
  for (int w = 0; w < workers; ++w) {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<RowSource> source, open_source(w));
    sources.push_back(std::move(source));
  }
  SharedProgress shared;
  TrainReport report;
  const int64_t start_ns = Clock::Real()->NowNs();
  auto snapshot = [&](int epoch) {
    absl::MutexLock lock(&shared.mu);
    TrainProgress p = shared.total;
    p.epoch = epoch;
    p.seconds = static_cast<double>(Clock::Real()->NowNs() - start_ns) * 1e-9;
    return p;
  };
  std::vector<uint64_t> steps(workers, options.first_step);
  float learning_rate = options.learning_rate;
  for (int e = 0; e < options.epochs; ++e) {
    RunEpoch(options, data, e, learning_rate, sources, &steps, &shared,
             [&] { progress(snapshot(e)); });
    absl::MutexLock lock(&shared.mu);
    if (!shared.error.ok()) return shared.error;
    report.epoch_loss.push_back(shared.epoch_examples == 0
                                    ? 0
                                    : shared.epoch_loss /
                                          static_cast<double>(shared.epoch_examples));
    shared.epoch_loss = 0;
    shared.epoch_examples = 0;
    learning_rate *= options.learning_rate_decay;
  }
  for (const auto& source : sources) {
    const LookAheadStats stats = source->look_ahead();
    report.look_ahead.rows += stats.rows;
    report.look_ahead.rows_ready += stats.rows_ready;
    report.look_ahead.rows_refreshed += stats.rows_refreshed;
    report.look_ahead.rows_late += stats.rows_late;
  }
  report.total = snapshot(options.epochs - 1);
  progress(report.total);
  return report;
}

absl::StatusOr<EvalReport> Evaluate(const TrainOptions& options, const Dataset& data,
                                    Dataset::Part part, float label_min, float label_max,
                                    RowReader* reader,
                                    const std::function<void(float)>& predicted) {
  Dataset::Epoch epoch(&data, part, 0);
  Slot slot;
  slot.rows.resize(options.layout.fields());
  slot.gradients.resize(options.layout.fields());
  Batch chunk;
  BinaryScores scores;
  SquaredErrors errors;
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const bool more, epoch.NextChunk(&chunk));
    if (!more) break;
    for (size_t first = 0; first < chunk.size(); first += options.batch_size) {
      slot.batch.Reset(options.layout.fields());
      AppendExamples(chunk, first, std::min(chunk.size(), first + options.batch_size), &slot.batch);
      HOTBED_RETURN_IF_ERROR(reader->Lookup(ColumnsOf(options, &slot)).Wait());
      slot.predictions.resize(slot.batch.size());
      FmPredict(options.shape, RowPointers(slot), BiasOf(options, slot), slot.batch.size(),
                slot.predictions.data());
      for (size_t i = 0; i < slot.batch.size(); ++i) {
        float value = slot.predictions[i];
        if (options.shape.loss == Loss::kLogistic) {
          scores.Add(value, slot.batch.labels[i] > 0.5f);
        } else {
          value = std::clamp(value, label_min, label_max);
          errors.Add(value - slot.batch.labels[i]);
        }
        if (predicted) predicted(value);
      }
    }
  }
  EvalReport report;
  report.examples = scores.size() + errors.count;
  report.auc = scores.Auc();
  report.log_loss = scores.LogLoss();
  report.rmse = errors.Rmse();
  return report;
}

}  // namespace hotbed
