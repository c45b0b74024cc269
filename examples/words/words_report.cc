#include "examples/words/words_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kDeviationsAllowed = 3;

std::string RunName(size_t run) { return run == 0 ? "local, same draws" : "local, other draws"; }

void AddRun(const std::string& name, const WordRun& run, TablePrinter* table) {
  const WordProgress& total = run.training.total;
  const std::vector<double>& losses = run.training.epoch_loss;
  table->AddRow({name, absl::StrFormat("%.1f s", total.seconds),
                 ShortCount(static_cast<double>(total.words) / std::max(total.seconds, 1e-9)),
                 losses.empty() ? "-" : absl::StrFormat("%.4f", losses.front()),
                 losses.empty() ? "-" : absl::StrFormat("%.4f", losses.back()),
                 absl::StrFormat("%.4f", run.scores.context_auc),
                 absl::StrFormat("%.3f", run.scores.family_hits)});
}

std::string Verdict(const char* name, const ScoreComparison& c) {
  return absl::StrFormat(
      "%s: cluster %.4f, local %.4f; the difference %.4f is %s the noise (runs %.4f, questions "
      "%.4f, three of the larger allowed)\n",
      name, c.cluster, c.local_mean, std::abs(c.cluster - c.local_mean),
      c.agrees ? "within" : "beyond", c.local_deviation, c.standard_error);
}

Json RunJson(const WordRun& run) {
  const WordProgress& total = run.training.total;
  return {{"seconds", total.seconds},
          {"words", total.words},
          {"words_per_second", static_cast<double>(total.words) / std::max(total.seconds, 1e-9)},
          {"pairs", total.pairs},
          {"steps", total.steps},
          {"rows_pulled", total.rows_pulled},
          {"rows_pushed", total.rows_pushed},
          {"epoch_loss", run.training.epoch_loss},
          {"context_auc", run.scores.context_auc},
          {"family_hits", run.scores.family_hits}};
}

Json ComparisonJson(const ScoreComparison& c) {
  return {{"cluster", c.cluster},
          {"local_mean", c.local_mean},
          {"local_deviation", c.local_deviation},
          {"standard_error", c.standard_error},
          {"agrees", c.agrees}};
}

// The cluster's and the local runs' contexts, then their families.
std::array<ScoreComparison, 2> Compare(const WordsResult& result) {
  std::vector<double> contexts, families;
  for (const WordRun& run : result.local) {
    contexts.push_back(run.scores.context_auc);
    families.push_back(run.scores.family_hits);
  }
  const WordScores& scores = result.cluster.scores;
  return {CompareScores(scores.context_auc, contexts, scores.contexts),
          CompareScores(scores.family_hits, families, scores.families)};
}

}  // namespace

ScoreComparison CompareScores(double cluster, const std::vector<double>& local,
                              uint64_t questions) {
  ScoreComparison result;
  result.cluster = cluster;
  if (local.empty()) return result;
  for (const double value : local) result.local_mean += value;
  result.local_mean /= static_cast<double>(local.size());
  double squares = 0;
  for (const double value : local) {
    squares += (value - result.local_mean) * (value - result.local_mean);
  }
  if (local.size() > 1) {
    result.local_deviation = std::sqrt(squares / static_cast<double>(local.size() - 1));
  }
  const double p = std::clamp((cluster + result.local_mean) / 2, 0.0, 1.0);
  result.standard_error =
      std::sqrt(p * (1 - p) / static_cast<double>(std::max<uint64_t>(questions, 1)));
  result.agrees = std::abs(cluster - result.local_mean) <=
                  kDeviationsAllowed * std::max(result.local_deviation, result.standard_error);
  return result;
}

std::string WordsText(const WordsResult& result) {
  std::string text = absl::StrFormat(
      "text       %s words in %s sentences, %s of the vocabulary; %s sentences held out\n\n",
      WithCommas(result.train_words), WithCommas(result.train_sentences),
      WithCommas(result.vocabulary), WithCommas(result.held_out_sentences));
  TablePrinter runs(
      {"training", "time", "words/s", "first loss", "last loss", "contexts", "families"});
  AddRun(absl::StrCat("cluster, ", result.trainers, " trainers"), result.cluster, &runs);
  for (size_t r = 0; r < result.local.size(); ++r) AddRun(RunName(r), result.local[r], &runs);
  const WordScores& scores = result.cluster.scores;
  absl::StrAppend(
      &text, runs.ToText(),
      absl::StrFormat("\ncontexts: a real context of a held-out sentence is scored above "
                      "a drawn word; chance 0.5, frequency alone %.4f (%s pairs)\n"
                      "families: king and kings, go and goeth: one is among the ten "
                      "nearest of the other; chance %.4f (%s questions)\n\n",
                      scores.frequency_auc, WithCommas(scores.contexts), scores.family_chance,
                      WithCommas(scores.families)));
  if (!result.local.empty()) {
    const auto [contexts, families] = Compare(result);
    absl::StrAppend(&text, Verdict("contexts", contexts), Verdict("families", families), "\n");
  }
  TablePrinter table({"word", "occurs", "nearest, by cosine"});
  for (const NeighbourLine& line : result.neighbours) {
    table.AddRow({line.word, WithCommas(line.count),
                  absl::StrJoin(line.neighbours, ", ", [](std::string* out, const auto& n) {
                    absl::StrAppend(out, n.first, absl::StrFormat(" %.2f", n.second));
                  })});
  }
  absl::StrAppend(&text, table.ToText());
  if (!result.missing_words.empty()) {
    absl::StrAppend(&text, "not in the vocabulary: ", absl::StrJoin(result.missing_words, ", "),
                    "\n");
  }
  return text;
}

std::string WordsJson(const WordsResult& result) {
  Json json = {{"vocabulary", result.vocabulary},
               {"train_words", result.train_words},
               {"train_sentences", result.train_sentences},
               {"held_out_sentences", result.held_out_sentences},
               {"trainers", result.trainers},
               {"servers", result.servers},
               {"cluster", RunJson(result.cluster)},
               {"local", Json::array()},
               {"context_pairs", result.cluster.scores.contexts},
               {"frequency_auc", result.cluster.scores.frequency_auc},
               {"family_questions", result.cluster.scores.families},
               {"family_chance", result.cluster.scores.family_chance}};
  for (const WordRun& run : result.local) json["local"].push_back(RunJson(run));
  if (!result.local.empty()) {
    const auto [contexts, families] = Compare(result);
    json["comparison"] = {{"contexts", ComparisonJson(contexts)},
                          {"families", ComparisonJson(families)}};
  }
  json["neighbours"] = Json::object();
  for (const NeighbourLine& line : result.neighbours) {
    Json list = Json::array();
    for (const auto& [word, cosine] : line.neighbours) {
      list.push_back({{"word", word}, {"cosine", cosine}});
    }
    json["neighbours"][line.word] = list;
  }
  json["missing_words"] = result.missing_words;
  return json.dump(2) + "\n";
}

}  // namespace hotbed
