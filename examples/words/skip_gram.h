// Skip-gram with negative sampling (Mikolov et al. 2013, "Distributed Representations of Words and
// Phrases and their Compositionality", section 2.2): windows of the text, loss and gradient.
//
// For a centre word with input vector v, its contexts with output vectors c_j and k negatives n_i:
//   loss = sum_j [ -log s(v.c_j) - sum_i log s(-v.n_i) ],  s(x) = 1 / (1 + exp(-x)).
// The k negatives are drawn once per centre and shared by its contexts (Ji et al. 2016,
// "Parallelizing Word2Vec in Shared and Distributed Memory"), so that each counts once per context.
#ifndef HOTBED_EXAMPLES_WORDS_SKIP_GRAM_H_
#define HOTBED_EXAMPLES_WORDS_SKIP_GRAM_H_

#include <cstdint>
#include <vector>

#include "common/random.h"
#include "examples/words/corpus.h"

namespace hotbed {

// The centres of a step, as ids of rows of the two tables. The outputs of centre i are
// outputs[first[i], first[i + 1]): contexts[i] contexts, then its negatives.
struct SkipGramBatch {
  std::vector<uint64_t> centres;
  std::vector<uint64_t> outputs;
  std::vector<uint32_t> first;
  std::vector<uint32_t> contexts;
  uint64_t words_read = 0;  // of the text, including those not kept
  uint64_t pairs = 0;       // sum of contexts

  void Clear();
};

struct WindowOptions {
  int window = 5;     // contexts to each side, drawn from 1..window for each centre
  int negatives = 5;  // k
  double subsample = 1e-3;
  double noise_power = 0.75;
  uint64_t seed = 1;
};

// Shared by the trainers. Immutable.
struct WindowSource {
  WindowSource(const Corpus* text, const WindowOptions& window_options)
      : corpus(text),
        options(window_options),
        keep(KeepProbabilities(*text, window_options.subsample)),
        noise(text->counts, window_options.noise_power) {}

  const Corpus* corpus;
  WindowOptions options;
  std::vector<float> keep;
  NoiseSampler noise;
};

// One trainer's share of one epoch: the sentences whose number is `part` modulo `parts`, in an
// order drawn for the epoch. Depends on its arguments alone. Thread-compatible.
class WindowStream {
 public:
  WindowStream(const WindowSource* source, int epoch, int part, int parts);
  // Fills the batch with up to `centres` centres. False when the share is over: the batch is empty.
  bool Next(size_t centres, SkipGramBatch* batch);

 private:
  bool NextSentence(SkipGramBatch* batch);
  void AddCentre(size_t at, SkipGramBatch* batch);

  const WindowSource* const source_;
  Random random_;
  std::vector<uint32_t> order_;  // sentences
  size_t next_sentence_ = 0;
  std::vector<uint32_t> sentence_;  // the words kept of the current one
  size_t next_centre_ = 0;
};

// Returns the loss of the batch and writes the gradients of all rows, in the shapes of the rows:
// inputs is centres x dim floats, outputs is outputs x dim floats.
double SkipGramGradient(const SkipGramBatch& batch, uint32_t dim, const float* inputs,
                        const float* outputs, float* input_gradients, float* output_gradients);

// Sum of a[i] * b[i], in eight lanes.
float Dot(const float* a, const float* b, uint32_t dim);
// to[i] += factor * from[i]; the two do not overlap.
void AddScaled(float factor, const float* __restrict from, uint32_t dim, float* __restrict to);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_SKIP_GRAM_H_
