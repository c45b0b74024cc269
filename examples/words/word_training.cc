#include "examples/words/word_training.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "trainer/training.h"

namespace hotbed {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);
constexpr float kLastLearningRate = 0.01f;  // as a share of the first learning rate

// The state that all trainers of a run share.
struct Shared {
  std::atomic<uint64_t> words{0};
  std::atomic<bool> stop{false};
  uint64_t words_total = 0;
  int64_t start_ns = 0;
  double seconds_max = 0;
  absl::Mutex mu;
  // But for `words`; `loss`: per pair, exponential mean over batches.
  WordProgress total ABSL_GUARDED_BY(mu);
  std::vector<double> epoch_loss ABSL_GUARDED_BY(mu);
  std::vector<uint64_t> epoch_pairs ABSL_GUARDED_BY(mu);
  absl::Status error ABSL_GUARDED_BY(mu);

  double Seconds() const { return static_cast<double>(Clock::Real()->NowNs() - start_ns) * 1e-9; }
  // The done share of the run, 0..1, by words or by time, whichever is larger.
  double Done() const {
    double done = static_cast<double>(words.load(std::memory_order_relaxed)) /
                  static_cast<double>(std::max<uint64_t>(words_total, 1));
    if (seconds_max > 0) done = std::max(done, Seconds() / seconds_max);
    return std::min(done, 1.0);
  }
};

// A batch in flight: its rows, its gradients and the calls that use them.
struct Slot : BatchCalls {
  SkipGramBatch batch;
  std::vector<float> inputs, outputs, input_gradients, output_gradients;

  std::vector<RowColumn> Columns(uint32_t dim) {
    inputs.resize(batch.centres.size() * dim);
    outputs.resize(batch.outputs.size() * dim);
    input_gradients.resize(inputs.size());
    output_gradients.resize(outputs.size());
    return {{kInputTable, batch.centres, inputs.data(), input_gradients.data()},
            {kOutputTable, batch.outputs, outputs.data(), output_gradients.data()}};
  }
};

class Trainer {
 public:
  Trainer(const WordTrainingOptions& options, RowSource* source, Shared* shared)
      : options_(options), source_(source), shared_(shared), slots_(options.in_flight) {}

  absl::Status RunEpoch(WindowStream* stream, int epoch) {
    absl::Status status;
    bool more = true;
    while (status.ok() && (more || pulled_ > 0)) {
      if (shared_->stop.load(std::memory_order_relaxed) || shared_->Done() >= 1) more = false;
      while (status.ok() && more && pulled_ < options_.in_flight) {
        const absl::StatusOr<bool> next = StartPull(stream);
        status = next.status();
        more = next.ok() && *next;
      }
      if (status.ok() && pulled_ > 0) status = Compute(epoch);
    }
    status.Update(Drain());
    return status;
  }

 private:
  Slot& SlotAt(int ahead) { return slots_[(current_ + ahead) % slots_.size()]; }

  // Pulls the rows of the next batch. False when the epoch is over.
  absl::StatusOr<bool> StartPull(WindowStream* stream) {
    Slot& slot = SlotAt(pulled_);
    HOTBED_RETURN_IF_ERROR(slot.FinishPush());
    const bool more = stream->Next(options_.batch_centres, &slot.batch);
    shared_->words.fetch_add(slot.batch.words_read, std::memory_order_relaxed);
    if (!more) return false;
    slot.pull = source_->Pull(slot.Columns(options_.dim));
    ++pulled_;
    return true;
  }

  absl::Status Compute(int epoch) {
    Slot& slot = SlotAt(0);
    const absl::Status pulled = slot.FinishPull();
    current_ = (current_ + 1) % static_cast<int>(slots_.size());
    --pulled_;
    HOTBED_RETURN_IF_ERROR(pulled);
    const double loss =
        SkipGramGradient(slot.batch, options_.dim, slot.inputs.data(), slot.outputs.data(),
                         slot.input_gradients.data(), slot.output_gradients.data());
    const auto left = static_cast<float>(1 - shared_->Done());
    const float rate = options_.learning_rate * std::max(left, kLastLearningRate);
    slot.push = source_->Push(++step_, slot.Columns(options_.dim), rate);
    Account(slot.batch, loss, epoch);
    return absl::OkStatus();
  }

  // Waits for all calls that still use the slots' buffers.
  absl::Status Drain() {
    absl::Status first;
    for (Slot& slot : slots_) {
      first.Update(slot.FinishPull());
      first.Update(slot.FinishPush());
    }
    pulled_ = 0;
    absl::MutexLock lock(&shared_->mu);
    counted_.AddTo(&shared_->total, *source_);
    return first;
  }

  void Account(const SkipGramBatch& batch, double loss, int epoch) {
    absl::MutexLock lock(&shared_->mu);
    counted_.AddTo(&shared_->total, *source_);
    shared_->total.pairs += batch.pairs;
    ++shared_->total.steps;
    shared_->epoch_loss[epoch] += loss;
    shared_->epoch_pairs[epoch] += batch.pairs;
    const double mean = loss / static_cast<double>(batch.pairs);
    double& recent = shared_->total.loss;
    recent = recent == 0 ? mean : 0.98 * recent + 0.02 * mean;
  }

  const WordTrainingOptions& options_;
  RowSource* const source_;
  Shared* const shared_;
  std::vector<Slot> slots_;
  int current_ = 0;  // the slot that is computed next
  int pulled_ = 0;   // slots whose rows are being pulled, from the current one on
  uint64_t step_ = 0;
  CountedRows counted_;
};

WordProgress Snapshot(const WordTrainingOptions& options, uint64_t words_of_epoch, Shared* shared) {
  absl::MutexLock lock(&shared->mu);
  WordProgress p = shared->total;
  p.words = shared->words.load();
  p.words_total = shared->words_total;
  p.epoch = static_cast<int>(std::min<uint64_t>(p.words / words_of_epoch, options.epochs - 1));
  p.seconds = shared->Seconds();
  return p;
}

WordTrainingReport Report(const WordTrainingOptions& options, uint64_t words_of_epoch,
                          Shared* shared) {
  WordTrainingReport report;
  report.total = Snapshot(options, words_of_epoch, shared);
  absl::MutexLock lock(&shared->mu);
  for (int e = 0; e < options.epochs && shared->epoch_pairs[e] > 0; ++e) {
    report.epoch_loss.push_back(shared->epoch_loss[e] /
                                static_cast<double>(shared->epoch_pairs[e]));
  }
  return report;
}

}  // namespace

std::vector<TableSpec> WordTables(const WordModelOptions& options, uint64_t words) {
  std::vector<TableSpec> specs(2);
  for (int t : {kInputTable, kOutputTable}) {
    TableSpec& spec = specs[t];
    spec.name = absl::StrCat(options.table_prefix, t == kInputTable ? "_input" : "_output");
    spec.rows = words;
    spec.dim = options.dim;
    spec.optimizer.kind = options.optimizer;
    spec.optimizer.learning_rate = options.learning_rate;
    spec.durability = options.durability;
    spec.seed = options.seed * 2 + static_cast<uint64_t>(t);
  }
  const float reach = 0.5f / static_cast<float>(options.dim);
  specs[kOutputTable].initializer = {InitializerKind::kZero};
  specs[kInputTable].initializer = {InitializerKind::kUniform, -reach, reach};
  return specs;
}

absl::StatusOr<WordTrainingReport> TrainWords(
    const WordTrainingOptions& options, const WindowSource& windows,
    const WordSourceFactory& open_source,
    const std::function<bool(const WordProgress&)>& progress) {
  std::vector<std::unique_ptr<RowSource>> sources;
  for (int t = 0; t < options.trainers; ++t) {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<RowSource> source, open_source(t));
    sources.push_back(std::move(source));
  }
  Shared shared;
  const uint64_t words_of_epoch = windows.corpus->train_words;
  shared.words_total = words_of_epoch * options.epochs;
  shared.seconds_max = options.seconds_max;
  shared.start_ns = Clock::Real()->NowNs();
  {
    absl::MutexLock lock(&shared.mu);
    shared.epoch_loss.resize(options.epochs);
    shared.epoch_pairs.resize(options.epochs);
  }
  const auto train = [&](int t) {
    Trainer trainer(options, sources[t].get(), &shared);
    absl::Status status;
    for (int epoch = 0; epoch < options.epochs && status.ok() && !shared.stop; ++epoch) {
      WindowStream stream(&windows, epoch, t, options.trainers);
      status = trainer.RunEpoch(&stream, epoch);
    }
    if (status.ok()) return;
    shared.stop = true;
    absl::MutexLock lock(&shared.mu);
    shared.error.Update(status);
  };
  bool cancelled = false;
  RunTrainers(options.trainers, kProgressInterval, train, [&] {
    if (cancelled || progress(Snapshot(options, words_of_epoch, &shared))) return;
    cancelled = shared.stop = true;
  });
  {
    absl::MutexLock lock(&shared.mu);
    HOTBED_RETURN_IF_ERROR(shared.error);
  }
  if (cancelled) return absl::CancelledError("interrupted");
  WordTrainingReport report = Report(options, words_of_epoch, &shared);
  progress(report.total);
  return report;
}

}  // namespace hotbed
