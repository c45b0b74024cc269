// Training with threads that pull rows, compute and push gradients. The code is the same for a
// cluster and for local arrays; only the row source differs.
//
// Each trainer owns a source, reads its own sentences and keeps `in_flight` batches in flight. With
// 1, a trainer pulls only after its last push was answered, so that the result of a single trainer
// depends on the text and the options alone. With more, rows may be that many steps old.
#ifndef HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_
#define HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/table_spec.h"
#include "examples/words/skip_gram.h"
#include "trainer/row_source.h"

namespace hotbed {

constexpr int kInputTable = 0, kOutputTable = 1;  // of a RowSource

struct WordModelOptions {
  std::string table_prefix = "words";  // tables PREFIX_input and PREFIX_output
  uint32_t dim = 64;
  OptimizerKind optimizer = OptimizerKind::kRowwiseAdagrad;  // or kSgd
  float learning_rate = 0.1f;
  uint64_t seed = 1;
  Durability durability = Durability::kLog;
};

// The two tables, with one row per word. Input vectors begin uniform in +-1/(2 dim) and output
// vectors at zero, as in the authors' program.
std::vector<TableSpec> WordTables(const WordModelOptions& options, uint64_t words);

struct WordTrainingOptions {
  uint32_t dim = 64;
  int trainers = 2;
  int epochs = 1;
  double seconds_max = 0;      // > 0: training ends after this time
  size_t batch_centres = 256;  // per step
  int in_flight = 2;           // steps of a trainer, 1..8
  float learning_rate = 0.1f;  // falls linearly to a hundredth over the run
};

struct WordProgress {
  int epoch = 0;
  uint64_t words = 0, words_total = 0;
  uint64_t pairs = 0;
  uint64_t steps = 0;
  uint64_t rows_pulled = 0, rows_pushed = 0;
  double loss = 0;  // per pair, moving average over batches
  double seconds = 0;
};

struct WordTrainingReport {
  WordProgress total;
  std::vector<double> epoch_loss;  // per pair, mean of each whole epoch
};

using WordSourceFactory = std::function<absl::StatusOr<std::unique_ptr<RowSource>>(int trainer)>;

// Calls `progress` on this thread about ten times per second. If it returns false, the run ends
// with Cancelled.
absl::StatusOr<WordTrainingReport> TrainWords(
    const WordTrainingOptions& options, const WindowSource& windows,
    const WordSourceFactory& open_source, const std::function<bool(const WordProgress&)>& progress);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_
