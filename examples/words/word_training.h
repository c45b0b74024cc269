// The training: trainer threads that pull rows, compute and push gradients. The same code for a
// cluster and for local arrays; only the row source differs.
//
// Each trainer owns a source, reads its own sentences and keeps `in_flight` batches on their way:
// with 1, a pull is asked for after the push before it was answered, so that one trainer's result
// is a function of the text and the options alone; with more, rows may be that many steps old.
#ifndef HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_
#define HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/table_spec.h"
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

// The two tables: a row a word. Input vectors begin uniform in +-1/(2 dim), output vectors at zero,
// as in the authors' program.
std::vector<TableSpec> WordTables(const WordModelOptions& options, uint64_t words);

struct WordTrainingOptions {
  uint32_t dim = 64;
  int trainers = 2;
  int epochs = 1;
  double seconds_max = 0;      // > 0: training ends then, whatever is left
  size_t batch_centres = 256;  // a step
  int in_flight = 2;           // steps of a trainer, 1..8
  float learning_rate = 0.1f;  // falls linearly to a hundredth of itself over the run
};

struct WordProgress {
  int epoch = 0;
  uint64_t words = 0, words_total = 0;
  uint64_t pairs = 0;
  uint64_t steps = 0;
  uint64_t rows_pulled = 0, rows_pushed = 0;
  double loss = 0;  // a pair, mean of the last batches
  double seconds = 0;
};

struct WordTrainingReport {
  WordProgress total;
  std::vector<double> epoch_loss;  // a pair, mean of each whole epoch
};

using WordSourceFactory = std::function<absl::StatusOr<std::unique_ptr<RowSource>>(int trainer)>;

// `progress` is called on this thread about ten times a second; false from it stops the run
// (Cancelled).
absl::StatusOr<WordTrainingReport> TrainWords(
    const WordTrainingOptions& options, const WindowSource& windows,
    const WordSourceFactory& open_source, const std::function<bool(const WordProgress&)>& progress);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_WORD_TRAINING_H_
