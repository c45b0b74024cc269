#include "examples/words/word_quality.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr uint64_t kFamilyCount = 20;
constexpr int kFamilyNeighbours = 10;

std::vector<float> Unit(const WordVectors& vectors) {
  std::vector<float> unit = vectors.input;
  for (size_t first = 0; first < unit.size(); first += vectors.dim) {
    const float norm = std::sqrt(Dot(unit.data() + first, unit.data() + first, vectors.dim));
    if (norm == 0) continue;
    for (uint32_t d = 0; d < vectors.dim; ++d) unit[first + d] /= norm;
  }
  return unit;
}

std::vector<Neighbour> Nearest(const Corpus& corpus, const std::vector<float>& unit, uint32_t dim,
                               uint32_t word, int count, uint64_t min_count) {
  std::vector<Neighbour> all;
  for (uint32_t other = 0; other < corpus.words.size(); ++other) {
    if (other == word || corpus.counts[other] < min_count) continue;
    all.push_back(
        {other, Dot(unit.data() + size_t{word} * dim, unit.data() + size_t{other} * dim, dim)});
  }
  const size_t kept = std::min<size_t>(count, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(kept), all.end(),
                    [](const Neighbour& a, const Neighbour& b) {
                      return a.cosine != b.cosine ? a.cosine > b.cosine : a.word < b.word;
                    });
  all.resize(kept);
  return all;
}

// 1 where the first is greater, 0.5 where they are equal.
double Win(double first, double second) { return first > second ? 1 : first == second ? 0.5 : 0; }

}  // namespace

std::vector<Neighbour> NearestWords(const Corpus& corpus, const WordVectors& vectors, uint32_t word,
                                    int count, uint64_t min_count) {
  return Nearest(corpus, Unit(vectors), vectors.dim, word, count, min_count);
}

std::vector<std::pair<uint32_t, uint32_t>> FamilyPairs(const Corpus& corpus, uint64_t min_count) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (uint32_t word = 0; word < corpus.words.size(); ++word) {
    if (corpus.counts[word] < min_count || corpus.words[word].size() < 3) continue;
    for (const char* ending : {"s", "eth", "est", "ed", "ing"}) {
      const auto found = corpus.number_of.find(absl::StrCat(corpus.words[word], ending));
      if (found != corpus.number_of.end() && corpus.counts[found->second] >= min_count) {
        pairs.emplace_back(word, found->second);
      }
    }
  }
  return pairs;
}

WordScores ScoreWords(const WindowSource& windows, const WordVectors& vectors, uint64_t seed) {
  const Corpus& corpus = *windows.corpus;
  const auto window = static_cast<size_t>(windows.options.window);
  const uint32_t dim = vectors.dim;
  WordScores scores;
  Random random(seed);
  double wins = 0, frequency_wins = 0;
  std::vector<uint32_t> sentence;
  for (const std::vector<uint32_t>& words : corpus.held_out) {
    sentence.clear();
    for (const uint32_t word : words) {
      if (random.Double() < windows.keep[word]) sentence.push_back(word);
    }
    for (size_t at = 0; at < sentence.size(); ++at) {
      const float* const input = vectors.input.data() + size_t{sentence[at]} * dim;
      const size_t end = std::min(sentence.size(), at + window + 1);
      for (size_t i = at > window ? at - window : 0; i < end; ++i) {
        if (i == at) continue;
        const uint32_t real = sentence[i], drawn = windows.noise.Draw(&random);
        wins += Win(Dot(input, vectors.output.data() + size_t{real} * dim, dim),
                    Dot(input, vectors.output.data() + size_t{drawn} * dim, dim));
        frequency_wins += Win(static_cast<double>(corpus.counts[real]),
                              static_cast<double>(corpus.counts[drawn]));
        ++scores.contexts;
      }
    }
  }
  if (scores.contexts > 0) {
    scores.context_auc = wins / static_cast<double>(scores.contexts);
    scores.frequency_auc = frequency_wins / static_cast<double>(scores.contexts);
  }
  const std::vector<float> unit = Unit(vectors);
  uint64_t hits = 0;
  for (const auto& [word, longer] : FamilyPairs(corpus, kFamilyCount)) {
    for (const auto& [from, to] : {std::pair(word, longer), std::pair(longer, word)}) {
      const uint32_t wanted = to;
      const std::vector<Neighbour> near =
          Nearest(corpus, unit, dim, from, kFamilyNeighbours, kFamilyCount);
      hits += std::any_of(near.begin(), near.end(),
                          [wanted](const Neighbour& n) { return n.word == wanted; });
      ++scores.families;
    }
  }
  const auto frequent = std::count_if(corpus.counts.begin(), corpus.counts.end(),
                                      [](uint64_t count) { return count >= kFamilyCount; });
  if (scores.families > 0) {
    scores.family_hits = static_cast<double>(hits) / static_cast<double>(scores.families);
    scores.family_chance = kFamilyNeighbours / std::max(1.0, static_cast<double>(frequent - 1));
  }
  return scores;
}

}  // namespace hotbed
