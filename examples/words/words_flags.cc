#include "examples/words/words_flags.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "config/config.h"

namespace hotbed {
namespace {

constexpr char kSummary[] =
    "Trains word vectors (skip-gram with negative sampling, Mikolov et al. 2013) whose two tables "
    "live in a Hotbed cluster,\n"
    "shows nearest neighbours, and compares two scores with the same training on local arrays.\n"
    "\n"
    "  hotbed-train-words                                    the King James Bible, a cluster of "
    "its "
    "own\n"
    "  hotbed-train-words --text=FILE --coordinator=HOST:PORT";

void AddRunFlags(ConfigSchema* schema, WordsFlags* flags) {
  schema->Add("text", &flags->text, "FILE",
              "Text, one sentence a line. Empty: the Bible of Debian's bible-kjv.");
  schema->AddCoordinators(
      "coordinator", &flags->coordinator,
      "Of the cluster to use. Empty: one is started for this run and removed after it.");
  schema->AddInt("servers", &flags->servers, "Shard servers of a cluster started here.",
                 {.min = 1, .max = 16});
  schema->AddInt("trainers", &flags->trainers,
                 "Trainer threads, each a session with its own share of the sentences.",
                 {.min = 1, .max = 64});
  schema->AddInt("epochs", &flags->epochs, "Times over the text.", {.min = 1, .max = 1000});
  schema->AddDouble("seconds", &flags->seconds,
                    "Training (of the cluster and of each local run) ends after this many seconds "
                    "at the latest; 0: no limit.",
                    {.min = 0, .max = 86400});
  schema->AddInt("local-runs", &flags->local_runs,
                 "Trainings on local arrays to compare with: the first draws what the cluster's "
                 "does, the others show how much a score varies.",
                 {.min = 0, .max = 16});
  schema->AddInt("seed", &flags->seed, "Of all draws.", {.min = 0, .max = 1e9});
  schema->Add("table-prefix", &flags->table_prefix, "NAME",
              "The tables are NAME_input and NAME_output; they must not exist yet.");
  schema->AddChoice("wire", &flags->wire, {"fp32", "fp16", "bf16"},
                    "How rows and gradients travel.");
  schema->Add("words", &flags->words, "A,B,...", "Words whose neighbours are shown.");
  schema->AddInt("neighbours", &flags->neighbours, "Shown a word.", {.min = 1, .max = 100});
  schema->AddChoice("output", &flags->output, {"table", "json"},
                    "How the result is printed (also -o).");
}

void AddModelFlags(ConfigSchema* schema, WordsFlags* flags) {
  schema->AddInt("dim", &flags->dim, "Elements of a vector.", {.min = 1, .max = 1024});
  schema->AddInt("window", &flags->window, "Words to each side, drawn from 1 to this each time.",
                 {.min = 1, .max = 50});
  schema->AddInt("negatives", &flags->negatives,
                 "Words drawn against each centre by frequency^0.75.", {.min = 1, .max = 100});
  schema->AddDouble("subsample", &flags->subsample,
                    "Frequency above which words are thinned out; 0: none are.",
                    {.min = 0, .max = 1});
  schema->AddInt("min-count", &flags->min_count, "Rarer words are left out of the text.",
                 {.min = 1, .max = 1e9});
  schema->AddInt("batch-centres", &flags->batch_centres, "Centre words a push.",
                 {.min = 1, .max = 65536});
  schema->AddInt("in-flight", &flags->in_flight,
                 "Batches of a trainer in progress at once; with 1 and one trainer the cluster's "
                 "training is that of the local arrays, number by number.",
                 {.min = 1, .max = 8});
  schema->AddDouble("learning-rate", &flags->learning_rate,
                    "At the start; it falls linearly to a hundredth of it.",
                    {.min = 1e-9, .max = 100});
  schema->AddChoice("optimizer", &flags->optimizer, {"sgd", "rowwise-adagrad"},
                    "Of the tables (sgd wants a learning rate near 0.05).");
}

}  // namespace

bool LoadWordsFlags(int argc, char** argv, WordsFlags* flags, int* exit_code) {
  ConfigSchema schema("hotbed-train-words", kSummary);
  AddRunFlags(&schema, flags);
  AddModelFlags(&schema, flags);
  return schema.Load(argc, argv, exit_code);
}

WindowOptions WindowOptionsOf(const WordsFlags& flags, int run) {
  WindowOptions options;
  options.window = static_cast<int>(flags.window);
  options.negatives = static_cast<int>(flags.negatives);
  options.subsample = flags.subsample;
  options.seed = static_cast<uint64_t>(flags.seed) * 64 + static_cast<uint64_t>(run);
  return options;
}

WordModelOptions ModelOptionsOf(const WordsFlags& flags, int run) {
  WordModelOptions options;
  options.table_prefix = flags.table_prefix;
  options.dim = static_cast<uint32_t>(flags.dim);
  options.optimizer =
      flags.optimizer == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kRowwiseAdagrad;
  options.learning_rate = static_cast<float>(flags.learning_rate);
  options.seed = static_cast<uint64_t>(flags.seed) * 64 + static_cast<uint64_t>(run) + 1;
  return options;
}

WordTrainingOptions TrainingOptionsOf(const WordsFlags& flags) {
  WordTrainingOptions options;
  options.dim = static_cast<uint32_t>(flags.dim);
  options.trainers = static_cast<int>(flags.trainers);
  options.epochs = static_cast<int>(flags.epochs);
  options.seconds_max = flags.seconds;
  options.batch_centres = static_cast<size_t>(flags.batch_centres);
  options.in_flight = static_cast<int>(flags.in_flight);
  options.learning_rate = static_cast<float>(flags.learning_rate);
  return options;
}

std::vector<uint32_t> ShownWords(const WordsFlags& flags, const Corpus& corpus,
                                 std::vector<std::string>* missing) {
  std::vector<uint32_t> shown;
  for (const absl::string_view name : absl::StrSplit(flags.words, ',', absl::SkipWhitespace())) {
    const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(name));
    const auto found = corpus.number_of.find(word);
    if (found != corpus.number_of.end()) {
      shown.push_back(found->second);
    } else {
      missing->push_back(word);
    }
  }
  return shown;
}

}  // namespace hotbed
