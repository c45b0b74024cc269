#include "trainer/trainer_flags.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "config/config.h"
#include "trainer/criteo_format.h"
#include "trainer/ratings_format.h"

namespace hotbed {
namespace {

constexpr char kSummary[] =
    "Trains a factorization machine whose rows live in a Hotbed cluster, and tells how good it is "
    "on held-out lines; --score scores a file with a model that is in the cluster.\n"
    "\n"
    "  hotbed-train-ctr --format=criteo --train=day_0.tsv --test-fraction=0.1\n"
    "  hotbed-train-ctr --format=ratings --train=u1.base --test=u1.test\n"
    "  hotbed-train-ctr --score=day_1.tsv --predictions=day_1.txt\n"
    "\n"
    "Values left at 0 (or empty) take the format's default: criteo 15 factors, 2 epochs, batches "
    "of 512, Adagrad 0.04;\n"
    "ratings 31 factors, 40 epochs, batches of 256, SGD 0.02 with l2 0.1.";

OptimizerKind OptimizerOf(const std::string& name) {
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "adam") return OptimizerKind::kAdam;
  return name == "adagrad" ? OptimizerKind::kAdagrad : OptimizerKind::kRowwiseAdagrad;
}

void AddDataFlags(ConfigSchema* schema, TrainerFlags* flags) {
  schema->Add("train", &flags->train, "FILE", "Lines to train on.");
  schema->Add("test", &flags->test, "FILE",
              "Lines to judge by. Without it, --test-fraction of --train.");
  schema->Add(
      "score", &flags->score, "FILE",
      "Instead of training: score these lines with the model of --table-prefix, whose format "
      "and size the cluster knows.");
  schema->AddBool("served", &flags->served,
                  "With --score: read the rows of serving servers (hotbed serve add), which may be "
                  "rounded, instead of the trained ones.");
  schema->Add("predictions", &flags->predictions, "FILE",
              "Write the predicted probability or rating of each judged or scored line.");
  schema->AddDouble("test-fraction", &flags->test_fraction,
                    "Of --train, held out by a hash of the line number.", {.min = 0, .max = 0.9});
  schema->AddChoice(
      "format", &flags->format, {"criteo", "ratings"},
      "criteo: label, 13 integers, 26 categories (TSV, or CSV with header); ratings: user, item, "
      "rating, time.");
  schema->AddBool("skip-bad-lines", &flags->skip_bad_lines, "Count malformed lines and go on.");
  schema->AddInt("part", &flags->part, "Which part of the lines this process trains on, from 0.",
                 {.min = 0, .max = 4095});
  schema->AddInt(
      "parts", &flags->parts,
      "Processes that share --train at the same time; held-out lines are judged by each.",
      {.min = 1, .max = 4096});
  schema->AddInt("seed", &flags->seed, "Of the split and the shuffle.", {.min = 0, .max = 9e15});
}

void AddModelFlags(ConfigSchema* schema, TrainerFlags* flags) {
  schema->AddInt("factors", &flags->factors, "Length of a factor; a row is 1 + factors.",
                 {.min = 0, .max = 1024});
  schema->AddInt("epochs", &flags->epochs, "Times over the training lines.",
                 {.min = 0, .max = 10000});
  schema->AddInt("batch-size", &flags->batch_size,
                 "Most examples of a push. A push holds fewer while the pushes in flight of all "
                 "trainers would make training unstable.",
                 {.min = 0, .max = 65536});
  schema->AddDouble("learning-rate", &flags->learning_rate,
                    "Of the first epoch; lower while even pushes of 16 examples are too large.",
                    {.min = 0, .max = 100});
  schema->AddDouble("learning-rate-decay", &flags->learning_rate_decay,
                    "Factor from epoch to epoch.", {.min = 0, .max = 1});
  schema->AddDouble("l2", &flags->l2,
                    "Weight decay of every row an example touches; -1: by format.",
                    {.min = -1, .max = 100});
  schema->AddDouble("init-deviation", &flags->init_deviation,
                    "Standard deviation of a new row's values.", {.min = 0, .max = 10});
  schema->AddChoice("optimizer", &flags->optimizer,
                    {"", "sgd", "adagrad", "rowwise-adagrad", "adam"},
                    "Of the tables; empty: by format.");
}

// The accumulator holds squares of gradients that are summed over a push. Without a first value the
// first step of a rare row has the size of the learning rate, however small its gradient is.
constexpr float kInitialAccumulator = 1.0f;

// `word` is one of the flag's choices.
void SetDurability(const std::string& word, TableSpec* spec) {
  spec->durability = word == "log"          ? Durability::kLog
                     : word == "checkpoint" ? Durability::kCheckpoint
                                            : Durability::kReplicated;
  if (spec->durability == Durability::kReplicated) spec->replicas = word.back() - '0';
}

// Measured with the defaults, see docs/training.md. Twice the rate makes twice the step.
StableExamples StableOf(const TrainerFlags& flags) {
  constexpr double kSgdExamplesTimesRate = 2048 * 0.02;
  constexpr double kAdaptiveExamplesTimesRate = 1.0 * 0.04;  // times the root of those trained
  if (flags.learning_rate <= 0) return {};
  if (flags.optimizer == "sgd") return {.constant = kSgdExamplesTimesRate / flags.learning_rate};
  return {.per_root = kAdaptiveExamplesTimesRate / flags.learning_rate};
}

template <typename T>
void Default(T* value, T otherwise) {
  if (*value == T{}) *value = otherwise;
}

}  // namespace

bool LoadTrainerFlags(int argc, char** argv, TrainerFlags* flags, int* exit_code) {
  ConfigSchema schema("hotbed-train-ctr", kSummary);
  schema.AddCoordinators("coordinator", &flags->coordinator, "Of the cluster that holds the rows.");
  AddDataFlags(&schema, flags);
  AddModelFlags(&schema, flags);
  schema.AddInt("threads", &flags->threads, "Trainer threads of this process, each a session.",
                {.min = 1, .max = 256});
  schema.Add("table-prefix", &flags->table_prefix, "NAME",
             "The model's tables are NAME_...; made if missing.");
  schema.Add("job", &flags->job, "NAME",
             "Stable name of this run: repeated after a crash, steps already applied are not "
             "applied again. Empty: a "
             "new one each time.");
  schema.AddChoice("durability", &flags->durability,
                   {"log", "checkpoint", "replicated=2", "replicated=3"}, "Of tables made here.");
  schema.AddBool("fresh-rows", &flags->fresh_rows,
                 "Compute on rows that contain all pushes of the thread; otherwise the last two "
                 "may be missing.");
  schema.AddChoice("wire", &flags->wire, {"fp32", "fp16", "bf16"},
                   "How rows and gradients travel.");
  schema.AddChoice("output", &flags->output, {"table", "json"},
                   "How the result is printed (also -o).");
  return schema.Load(argc, argv, exit_code);
}

absl::Status CompleteTrainerFlags(TrainerFlags* flags) {
  if (flags->train.empty() == flags->score.empty()) {
    return absl::InvalidArgumentError(
        flags->train.empty()
            ? "--train is missing: name the file to train on, or with --score a file to score"
            : "--train and --score exclude each other: train first, then score");
  }
  if (flags->served && flags->score.empty()) {
    return absl::InvalidArgumentError("--served goes with --score: training reads no served rows");
  }
  if (flags->part >= flags->parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--part ", flags->part, " is not below --parts ", flags->parts));
  }
  const bool ratings = flags->format == "ratings";
  Default<int64_t>(&flags->factors, ratings ? 31 : 15);
  Default<int64_t>(&flags->epochs, ratings ? 40 : 2);
  Default<int64_t>(&flags->batch_size, ratings ? 256 : 512);
  Default(&flags->learning_rate, ratings ? 0.02 : 0.04);
  Default(&flags->learning_rate_decay, ratings ? 0.96 : 0.6);
  if (flags->l2 < 0) flags->l2 = ratings ? 0.1 : 0.001;
  Default(&flags->init_deviation, 0.05);
  Default(&flags->optimizer, std::string(ratings ? "sgd" : "adagrad"));
  if (flags->job.empty()) {
    flags->job = absl::StrCat("train-ctr-", Clock::Real()->WallUs(), "-", getpid());
  }
  return absl::OkStatus();
}

DataFormat FormatOf(const TrainerFlags& flags) {
  return flags.format == "ratings" ? DataFormat::kRatings : DataFormat::kCriteo;
}

DatasetOptions DatasetOptionsOf(const TrainerFlags& flags, const std::string& path,
                                double held_out_fraction) {
  DatasetOptions options;
  options.path = path;
  options.format = FormatOf(flags);
  options.fields = TrainOptionsOf(flags).layout.fields();
  options.held_out_fraction = held_out_fraction;
  options.skip_bad_lines = flags.skip_bad_lines;
  options.seed = static_cast<uint64_t>(flags.seed);
  options.part_index = static_cast<int>(flags.part);
  options.part_count = static_cast<int>(flags.parts);
  return options;
}

TrainOptions TrainOptionsOf(const TrainerFlags& flags) {
  TrainOptions options;
  if (flags.format == "ratings") {
    options.layout = RatingsLayout(flags.table_prefix);
    options.shape.loss = Loss::kSquared;
  } else {
    options.layout = CriteoLayout(flags.table_prefix);
    options.shape.loss = Loss::kLogistic;
    options.bias_table = 0;
    options.bias_id = kBiasId;
  }
  options.shape.fields = options.layout.fields();
  options.shape.dim = static_cast<int>(flags.factors) + 1;
  options.shape.l2 = static_cast<float>(flags.l2);
  options.epochs = static_cast<int>(flags.epochs);
  options.batch_size = static_cast<size_t>(flags.batch_size);
  options.learning_rate = static_cast<float>(flags.learning_rate);
  options.learning_rate_decay = static_cast<float>(flags.learning_rate_decay);
  options.parts = static_cast<int>(flags.parts);
  options.stable = StableOf(flags);
  options.first_step = 1;
  return options;
}

std::vector<TableSpec> TablesOf(const TrainerFlags& flags) {
  std::vector<TableSpec> specs;
  for (const std::string& name : TrainOptionsOf(flags).layout.tables) {
    TableSpec spec;
    spec.name = name;
    const bool bounded = flags.format == "criteo" && specs.empty();
    spec.hashed = !bounded;
    spec.rows = bounded ? kIntegerRows : 1000000;
    spec.dim = static_cast<uint32_t>(flags.factors) + 1;
    spec.optimizer.kind = OptimizerOf(flags.optimizer);
    spec.optimizer.learning_rate = static_cast<float>(flags.learning_rate);
    spec.optimizer.initial_accumulator = kInitialAccumulator;
    spec.initializer = {InitializerKind::kNormal, 0.0f, static_cast<float>(flags.init_deviation)};
    SetDurability(flags.durability, &spec);
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace hotbed
