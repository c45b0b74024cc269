// hotbed-train-words trains the word vectors of a real text in a Hotbed cluster. See --help.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/interrupt.h"
#include "cli/cluster/local_cluster.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/status_macros.h"
#include "examples/words/local_row_source.h"
#include "examples/words/text_source.h"
#include "examples/words/words_flags.h"
#include "examples/words/words_report.h"
#include "terminal/progress.h"
#include "terminal/table_printer.h"
#include "trainer/cluster_row_source.h"

namespace hotbed {
namespace {

constexpr uint64_t kScoreSeed = 7;
constexpr uint64_t kNeighbourMinCount = 20;
constexpr uint64_t kServerHostBytes = 128u << 20;

// A directory of this run, removed with its content.
class ScratchDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<ScratchDirectory>> Make() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "hotbed-words-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat(path, " cannot be made: set TMPDIR to a directory that is writable"));
    }
    auto made = std::make_unique<ScratchDirectory>();
    made->path_ = path;
    return made;
  }
  ~ScratchDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class WordsRun {
 public:
  explicit WordsRun(WordsFlags flags) : flags_(std::move(flags)) {}
  absl::Status Run();

 private:
  absl::Status StartCluster();
  absl::StatusOr<WordRun> TrainOnCluster();
  absl::StatusOr<WordRun> TrainLocally(int run);
  absl::StatusOr<WordTrainingReport> Train(const std::string& label, const WindowSource& windows,
                                           const WordSourceFactory& open_source);
  absl::StatusOr<WordVectors> ReadVectors(RowSource* source) const;
  void ShowNeighbours(const WordVectors& vectors);

  const WordsFlags flags_;
  const InterruptScope interrupt_;
  std::unique_ptr<ScratchDirectory> scratch_;
  std::unique_ptr<LocalCluster> cluster_;  // null where a running cluster is used
  std::string target_;
  Corpus corpus_;
  WordsResult result_;
};

absl::Status WordsRun::StartCluster() {
  if (!flags_.coordinator.empty()) {
    target_ = absl::StrCat("hotbed://", flags_.coordinator);
    return absl::OkStatus();
  }
  LocalClusterOptions options;
  options.data_dir = absl::StrCat(scratch_->path(), "/cluster");
  options.servers = static_cast<int>(flags_.servers);
  options.port = 0;
  options.host_bytes = kServerHostBytes;
  options.say = [](const std::string& text) { std::cerr << "cluster: " << text << std::endl; };
  options.cancelled = [this] { return interrupt_.interrupted(); };
  HOTBED_ASSIGN_OR_RETURN(cluster_, LocalCluster::Start(options, Clock::Real()));
  HOTBED_RETURN_IF_ERROR(cluster_->WaitReady(absl::Seconds(60)));
  result_.servers = options.servers;
  target_ = absl::StrCat("hotbed://", cluster_->coordinator_address());
  return absl::OkStatus();
}

absl::StatusOr<WordTrainingReport> WordsRun::Train(const std::string& label,
                                                   const WindowSource& windows,
                                                   const WordSourceFactory& open_source) {
  const WordTrainingOptions options = TrainingOptionsOf(flags_);
  Progress bar(&std::cerr, isatty(STDERR_FILENO) != 0, Clock::Real(), label,
               corpus_.train_words * options.epochs);
  std::string note;
  auto report = TrainWords(options, windows, open_source, [&](const WordProgress& p) {
    if (cluster_ != nullptr) cluster_->Tick();
    note = absl::StrFormat("epoch %d of %d  %s words/s  loss %.4f", p.epoch + 1, options.epochs,
                           ShortCount(static_cast<double>(p.words) / std::max(p.seconds, 1e-3)),
                           p.loss);
    bar.Update(p.words, note);
    return !interrupt_.interrupted();
  });
  bar.Finish(note);
  return report;
}

absl::StatusOr<WordVectors> WordsRun::ReadVectors(RowSource* source) const {
  WordVectors vectors;
  vectors.dim = static_cast<uint32_t>(flags_.dim);
  std::vector<uint64_t> ids(corpus_.words.size());
  std::iota(ids.begin(), ids.end(), 0);
  vectors.input.resize(ids.size() * vectors.dim);
  vectors.output.resize(vectors.input.size());
  HOTBED_RETURN_IF_ERROR(source
                             ->Lookup({{kInputTable, ids, vectors.input.data(), nullptr},
                                       {kOutputTable, ids, vectors.output.data(), nullptr}})
                             .Wait());
  return vectors;
}

absl::StatusOr<WordRun> WordsRun::TrainOnCluster() {
  std::vector<std::string> names;
  {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect(target_));
    for (const TableSpec& spec : WordTables(ModelOptionsOf(flags_, 0), corpus_.words.size())) {
      const auto table = client->CreateTable(spec);
      if (absl::IsAlreadyExists(table.status())) {
        return absl::AlreadyExistsError(
            absl::StrCat("table \"", spec.name, "\" exists: drop it (hotbed table drop ", spec.name,
                         "), or give another --table-prefix than \"", flags_.table_prefix, "\""));
      }
      HOTBED_RETURN_IF_ERROR(table.status());
      names.push_back(spec.name);
    }
  }
  const RowType wire = flags_.wire == "fp16"   ? RowType::kFp16
                       : flags_.wire == "bf16" ? RowType::kBf16
                                               : RowType::kFp32;
  const std::string job = absl::StrCat("train-words-", Clock::Real()->WallUs(), "-", getpid());
  const auto open_source = [&](int trainer) {
    ClientOptions options;
    options.session_name = absl::StrCat(job, "/", trainer);
    options.pull_type = options.push_type = wire;
    return ClusterRowSource::Open(target_, options, names);
  };
  const WindowSource windows(&corpus_, WindowOptionsOf(flags_, 0));
  WordRun run;
  HOTBED_ASSIGN_OR_RETURN(run.training, Train("cluster", windows, open_source));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> reader,
                          ClusterRowSource::Open(target_, ClientOptions{}, names));
  HOTBED_ASSIGN_OR_RETURN(const WordVectors vectors, ReadVectors(reader.get()));
  run.scores = ScoreWords(windows, vectors, kScoreSeed);
  ShowNeighbours(vectors);
  return run;
}

absl::StatusOr<WordRun> WordsRun::TrainLocally(int run_number) {
  LocalTables tables(WordTables(ModelOptionsOf(flags_, run_number), corpus_.words.size()));
  const auto open_source = [&](int) -> absl::StatusOr<std::unique_ptr<RowSource>> {
    return std::make_unique<LocalRowSource>(&tables);
  };
  const WindowSource windows(&corpus_, WindowOptionsOf(flags_, run_number));
  WordRun run;
  HOTBED_ASSIGN_OR_RETURN(run.training, Train("local  ", windows, open_source));
  LocalRowSource reader(&tables);
  HOTBED_ASSIGN_OR_RETURN(const WordVectors vectors, ReadVectors(&reader));
  run.scores = ScoreWords(windows, vectors, kScoreSeed);
  return run;
}

void WordsRun::ShowNeighbours(const WordVectors& vectors) {
  for (const uint32_t word : ShownWords(flags_, corpus_, &result_.missing_words)) {
    NeighbourLine line;
    line.word = corpus_.words[word];
    line.count = corpus_.counts[word];
    for (const Neighbour& near : NearestWords(
             corpus_, vectors, word, static_cast<int>(flags_.neighbours), kNeighbourMinCount)) {
      line.neighbours.emplace_back(corpus_.words[near.word], near.cosine);
    }
    result_.neighbours.push_back(std::move(line));
  }
}

absl::Status WordsRun::Run() {
  HOTBED_ASSIGN_OR_RETURN(scratch_, ScratchDirectory::Make());
  HOTBED_ASSIGN_OR_RETURN(const std::string text,
                          ReadText(flags_.text, kBibleProgram, scratch_->path()));
  CorpusOptions corpus_options;
  corpus_options.min_count = static_cast<uint64_t>(flags_.min_count);
  HOTBED_ASSIGN_OR_RETURN(corpus_, BuildCorpus(text, corpus_options));
  result_.vocabulary = corpus_.words.size();
  result_.train_words = corpus_.train_words;
  result_.train_sentences = corpus_.train.size();
  result_.held_out_sentences = corpus_.held_out.size();
  result_.trainers = static_cast<int>(flags_.trainers);
  HOTBED_RETURN_IF_ERROR(StartCluster());
  HOTBED_ASSIGN_OR_RETURN(result_.cluster, TrainOnCluster());
  // Stops the cluster before the local runs, with which it would share the processors.
  if (cluster_ != nullptr) HOTBED_RETURN_IF_ERROR(cluster_->Stop());
  cluster_.reset();
  for (int run = 0; run < flags_.local_runs; ++run) {
    HOTBED_ASSIGN_OR_RETURN(WordRun local, TrainLocally(run));
    result_.local.push_back(std::move(local));
  }
  std::cout << (flags_.json() ? WordsJson(result_) : WordsText(result_)) << std::flush;
  return absl::OkStatus();
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  hotbed::WordsFlags flags;
  int exit_code = 0;
  if (!hotbed::LoadWordsFlags(argc, argv, &flags, &exit_code)) return exit_code;
  const absl::Status status = hotbed::WordsRun(flags).Run();
  if (status.ok()) return 0;
  std::cerr << "hotbed-train-words: " << status.message() << "\n";
  return 1;
}
