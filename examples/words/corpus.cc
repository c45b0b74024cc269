#include "examples/words/corpus.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hotbed {
namespace {

// Whether `word` is a verse number, such as "Ge1:1" or "1Sm3:12".
bool IsVerseNumber(absl::string_view token) {
  const size_t colon = token.find(':');
  if (colon == 0 || colon == absl::string_view::npos || colon + 1 == token.size()) return false;
  const absl::string_view verse = token.substr(colon + 1);
  return absl::ascii_isdigit(token[colon - 1]) &&
         std::all_of(verse.begin(), verse.end(), absl::ascii_isdigit);
}

void AddWord(std::string* word, std::vector<std::string>* words) {
  while (!word->empty() && !absl::ascii_isalpha(word->back())) word->pop_back();
  if (absl::EndsWith(*word, "'s")) word->resize(word->size() - 2);
  if (!word->empty()) words->push_back(std::move(*word));
  word->clear();
}

}  // namespace

std::vector<std::string> WordsOfLine(absl::string_view line) {
  const size_t blank = line.find(' ');
  if (blank != absl::string_view::npos && IsVerseNumber(line.substr(0, blank))) {
    line.remove_prefix(blank);
  }
  std::vector<std::string> words;
  std::string word;
  for (const char c : line) {
    if (absl::ascii_isalpha(c)) {
      word.push_back(absl::ascii_tolower(c));
    } else if ((c == '\'' || c == '-') && !word.empty() && absl::ascii_isalpha(word.back())) {
      word.push_back(c);
    } else {
      AddWord(&word, &words);
    }
  }
  AddWord(&word, &words);
  return words;
}

absl::StatusOr<Corpus> BuildCorpus(absl::string_view text, const CorpusOptions& options) {
  std::vector<std::vector<std::string>> train, held_out;
  absl::flat_hash_map<std::string, uint64_t> counts;
  uint64_t sentences = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::vector<std::string> words = WordsOfLine(line);
    if (words.empty()) continue;
    const bool hold = options.held_out_every > 0 && ++sentences % options.held_out_every == 0;
    if (!hold) {
      for (const std::string& word : words) ++counts[word];
    }
    (hold ? held_out : train).push_back(std::move(words));
  }
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [word, count] : counts) {
    if (count >= options.min_count) order.emplace_back(count, word);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (order.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("of ", counts.size(), " different words ", order.size(), " occur at least ",
                     options.min_count, " times: give a longer text or a smaller --min-count"));
  }
  Corpus corpus;
  for (auto& [count, word] : order) {
    corpus.number_of.emplace(word, static_cast<uint32_t>(corpus.words.size()));
    corpus.words.push_back(std::move(word));
    corpus.counts.push_back(count);
    corpus.train_words += count;
  }
  const auto numbered = [&corpus](const std::vector<std::vector<std::string>>& from) {
    std::vector<std::vector<uint32_t>> to;
    for (const std::vector<std::string>& words : from) {
      std::vector<uint32_t> sentence;
      for (const std::string& word : words) {
        const auto found = corpus.number_of.find(word);
        if (found != corpus.number_of.end()) sentence.push_back(found->second);
      }
      if (!sentence.empty()) to.push_back(std::move(sentence));
    }
    return to;
  };
  corpus.train = numbered(train);
  corpus.held_out = numbered(held_out);
  return corpus;
}

std::vector<float> KeepProbabilities(const Corpus& corpus, double threshold) {
  std::vector<float> keep(corpus.counts.size(), 1.0f);
  if (threshold <= 0) return keep;
  for (size_t w = 0; w < keep.size(); ++w) {
    const double ratio =
        static_cast<double>(corpus.counts[w]) / static_cast<double>(corpus.train_words) / threshold;
    keep[w] = static_cast<float>(std::min(1.0, (std::sqrt(ratio) + 1) / ratio));
  }
  return keep;
}

NoiseSampler::NoiseSampler(const std::vector<uint64_t>& counts, double power) {
  double sum = 0;
  for (const uint64_t count : counts) {
    cumulative_.push_back(sum += std::pow(static_cast<double>(count), power));
  }
}

uint32_t NoiseSampler::Draw(Random* random) const {
  const double at = random->Double() * cumulative_.back();
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
  return static_cast<uint32_t>(
      std::min<size_t>(found - cumulative_.begin(), cumulative_.size() - 1));
}

}  // namespace hotbed
