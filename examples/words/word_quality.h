// Judges word vectors by the text itself: nearest neighbours for people, and two scores for
// comparison.
//
// 1. Held-out contexts: takes the pairs (centre, context) that training would have made of the
//    held-out sentences (frequent words thinned out, the widest window), and counts how often the
//    model's v.c is greater for the real context than for a word drawn like a negative (ties count
//    half). This is the area under the ROC curve; 0.5 is chance. A model that knows only
//    frequencies gets `frequency_auc`, the same with the count in place of v.c.
// 2. Family: takes pairs of words of which one is the other with an ending ("king" and "kings",
//    "go" and "goeth"), each at least 20 times in the text, and counts how often one is among the
//    ten nearest neighbours of the other, by cosine. Chance is ten words of the vocabulary. The
//    model does not see spelling, so a high score can only come from use.
//
// Pure functions.
#ifndef HOTBED_EXAMPLES_WORDS_WORD_QUALITY_H_
#define HOTBED_EXAMPLES_WORDS_WORD_QUALITY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/words/corpus.h"
#include "examples/words/skip_gram.h"

namespace hotbed {

struct WordVectors {
  uint32_t dim = 0;
  std::vector<float> input, output;  // words x dim
};

struct Neighbour {
  uint32_t word = 0;
  float cosine = 0;
};

// The `count` words nearest to `word` by the cosine of their input vectors. Leaves out the word
// itself and words with fewer than `min_count` occurrences.
std::vector<Neighbour> NearestWords(const Corpus& corpus, const WordVectors& vectors, uint32_t word,
                                    int count, uint64_t min_count);

// The pairs (word, word + ending) with the endings s, eth, est, ed and ing, where each word occurs
// at least `min_count` times.
std::vector<std::pair<uint32_t, uint32_t>> FamilyPairs(const Corpus& corpus, uint64_t min_count);

struct WordScores {
  double context_auc = 0;
  double frequency_auc = 0;
  uint64_t contexts = 0;   // pairs judged
  double family_hits = 0;  // as a share of `families`
  uint64_t families = 0;
  double family_chance = 0;
};

// The draws for the first score depend on `seed` and `windows` alone, so that models of one text
// are judged by the same questions.
WordScores ScoreWords(const WindowSource& windows, const WordVectors& vectors, uint64_t seed);

}  // namespace hotbed

#endif  // HOTBED_EXAMPLES_WORDS_WORD_QUALITY_H_
