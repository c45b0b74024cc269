// hotbed-train-ctr trains a factorization machine on a Hotbed cluster, and scores files with
// it. See --help.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "trainer/cluster_row_source.h"
#include "trainer/saved_model.h"
#include "trainer/served_row_reader.h"
#include "trainer/train_loop.h"
#include "trainer/trainer_flags.h"

namespace hotbed {
namespace {

struct LabelRange {
  double mean = 0;
  float min = 0;
  float max = 1;
};

std::string TargetOf(const TrainerFlags& flags) {
  return absl::StrCat("hotbed://", flags.coordinator);
}

// Mean and range of the training labels, for ratings.
absl::StatusOr<LabelRange> MeasureLabels(const Dataset& data) {
  Dataset::Epoch epoch(&data, Dataset::Part::kTrain, 0);
  LabelRange range = {0, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()};
  Batch batch;
  double sum = 0;
  uint64_t count = 0;
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const bool more, epoch.NextChunk(&batch));
    if (!more) break;
    for (float label : batch.labels) {
      sum += label;
      range.min = std::min(range.min, label);
      range.max = std::max(range.max, label);
    }
    count += batch.size();
  }
  if (count == 0)
    return absl::InvalidArgumentError("no line is left to train on: all were held out or bad");
  range.mean = sum / static_cast<double>(count);
  return range;
}

// Training waits long for a coordinator that went away; one that was never there is reported
// sooner.
constexpr absl::Duration kFirstAnswer = absl::Seconds(10);

absl::StatusOr<std::unique_ptr<Client>> FirstClient(const TrainerFlags& flags) {
  ClientOptions once;
  once.deadline = kFirstAnswer;
  return Client::Connect(TargetOf(flags), once);
}

// Makes the tables that are missing and agrees with other trainers of the model on its offset.
absl::StatusOr<SavedModel> MakeTables(const TrainerFlags& flags, const LabelRange& labels) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, FirstClient(flags));
  const std::vector<TableSpec> specs = TablesOf(flags);
  const SavedModel model = {FormatOf(flags), static_cast<int>(flags.factors),
                            static_cast<float>(labels.mean), labels.min, labels.max};
  HOTBED_ASSIGN_OR_RETURN(const SavedModel shared,
                          ShareModel(client.get(), flags.table_prefix, model, specs.front()));
  for (const TableSpec& spec : specs) {
    const auto table = client->CreateTable(spec, /*if_not_exists=*/true);
    if (!table.ok()) return table.status();
  }
  return shared;
}

ClientOptions SessionOptions(const TrainerFlags& flags, const std::string& name) {
  ClientOptions options;
  options.session_name = name;
  options.trainer_group = absl::StrCat(flags.table_prefix, "_trainers");
  options.pull_type = options.push_type = flags.wire == "fp16"   ? RowType::kFp16
                                          : flags.wire == "bf16" ? RowType::kBf16
                                                                 : RowType::kFp32;
  return options;
}

std::string ProgressNote(const TrainProgress& p, int epochs) {
  const double seconds = std::max(p.seconds, 1e-3);
  return absl::StrFormat(
      "epoch %d of %d  %.0fk ex/s  pull %.2fM rows/s  push %.2fM rows/s  loss %.4f", p.epoch + 1,
      epochs, p.examples / seconds / 1e3, p.rows_pulled / seconds / 1e6,
      p.rows_pushed / seconds / 1e6, p.loss);
}

nlohmann::ordered_json TrainedJson(const TrainReport& report) {
  const TrainProgress& t = report.total;
  return {{"examples", t.examples},
          {"seconds", t.seconds},
          {"examples_per_second", t.examples / std::max(t.seconds, 1e-9)},
          {"rows_pulled", t.rows_pulled},
          {"rows_pushed", t.rows_pushed},
          {"trainers", t.trainers},
          {"fresh_rows",
           {{"ready", report.look_ahead.rows_ready},
            {"refreshed", report.look_ahead.rows_refreshed},
            {"late", report.look_ahead.rows_late}}},
          {"epoch_loss", report.epoch_loss}};
}

void PrintTrained(const TrainReport& report) {
  const TrainProgress& t = report.total;
  std::cout << absl::StrFormat(
      "trained    %d examples in %.1f s (%.0f examples/s), %d rows pulled, %d pushed\n", t.examples,
      t.seconds, t.examples / std::max(t.seconds, 1e-9), t.rows_pulled, t.rows_pushed);
  if (const LookAheadStats& ahead = report.look_ahead; ahead.rows > 0) {
    std::cout << absl::StrFormat(
        "fresh rows %d pulled early and unchanged, %d refreshed in time, %d late\n",
        ahead.rows_ready, ahead.rows_refreshed, ahead.rows_late);
  }
  std::cout << "trainers   " << t.trainers << " at most, with those of other processes\n";
  std::cout << "loss       ";
  for (double loss : report.epoch_loss) std::cout << absl::StrFormat("%.4f ", loss);
  std::cout << "(mean of each epoch)\n";
}

// `report` is null if the model was only scored.
void PrintResult(const TrainerFlags& flags, const TrainReport* report, const EvalReport& eval,
                 uint64_t bad_lines) {
  const bool ratings = flags.format == "ratings";
  const char* const judged_name = report != nullptr ? "held_out_examples" : "scored_examples";
  if (flags.json()) {
    nlohmann::ordered_json out = {{"format", flags.format}};
    if (report != nullptr) out.update(TrainedJson(*report));
    out["bad_lines"] = bad_lines;
    out[judged_name] = eval.examples;
    // Without examples there is no quality: null cannot be mistaken for a number.
    const auto judged = [&eval](double value) {
      return eval.examples > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
    };
    if (ratings) {
      out["rmse"] = judged(eval.rmse);
    } else {
      out["auc"] = judged(eval.auc);
      out["log_loss"] = judged(eval.log_loss);
    }
    std::cout << out.dump(2) << "\n";
    return;
  }
  if (report != nullptr) PrintTrained(*report);
  if (bad_lines > 0) std::cout << "bad lines  " << bad_lines << " skipped\n";
  const char* const word = report != nullptr ? "held out   " : "scored     ";
  if (eval.examples == 0) {
    std::cout << word << "nothing (give --test or --test-fraction)\n";
  } else if (ratings) {
    std::cout << word << absl::StrFormat("%d examples: RMSE %.4f\n", eval.examples, eval.rmse);
  } else {
    std::cout << word
              << absl::StrFormat("%d examples: AUC %.4f, log loss %.4f\n", eval.examples, eval.auc,
                                 eval.log_loss);
  }
}

absl::StatusOr<std::unique_ptr<RowReader>> OpenReader(const TrainerFlags& flags,
                                                      const std::vector<std::string>& tables) {
  if (flags.served) return ServedRowReader::Open(TargetOf(flags), tables);
  return ClusterRowSource::Open(TargetOf(flags), ClientOptions{}, tables);
}

// Judges the model as `saved`, whose rows are in the cluster, and writes --predictions.
absl::StatusOr<EvalReport> Judge(const TrainerFlags& flags, const TrainOptions& options,
                                 const SavedModel& saved, const Dataset& data, Dataset::Part part) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<RowReader> reader,
                          OpenReader(flags, options.layout.tables));
  const auto score = [&](const std::function<void(float)>& predicted) {
    return Evaluate(options, data, part, saved.label_min, saved.label_max, reader.get(), predicted);
  };
  if (flags.predictions.empty()) return score(nullptr);
  std::ofstream file(flags.predictions);
  const bool ratings = saved.format == DataFormat::kRatings;
  absl::StatusOr<EvalReport> report = score([&](float value) {
    file << absl::StrFormat("%.9g\n", ratings ? value : 1 / (1 + std::exp(-double{value})));
  });
  file.close();
  if (report.ok() && !file) {
    return absl::UnavailableError(absl::StrCat("cannot write --predictions to ", flags.predictions,
                                               ": ", std::strerror(errno)));
  }
  return report;
}

// Scores a file with a model that was trained before, maybe by other processes.
absl::Status Score(TrainerFlags flags) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, FirstClient(flags));
  HOTBED_ASSIGN_OR_RETURN(const SavedModel saved, LoadModel(client.get(), flags.table_prefix));
  flags.format = saved.format == DataFormat::kRatings ? "ratings" : "criteo";
  flags.factors = saved.factors;
  HOTBED_RETURN_IF_ERROR(CompleteTrainerFlags(&flags));
  TrainOptions options = TrainOptionsOf(flags);
  options.shape.offset = saved.offset;
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data,
                          Dataset::Open(DatasetOptionsOf(flags, flags.score, 0)));
  HOTBED_ASSIGN_OR_RETURN(const EvalReport eval,
                          Judge(flags, options, saved, *data, Dataset::Part::kAll));
  PrintResult(flags, nullptr, eval, data->bad_lines());
  return absl::OkStatus();
}

absl::Status Run(TrainerFlags flags) {
  if (!flags.score.empty() && flags.train.empty()) return Score(std::move(flags));
  HOTBED_RETURN_IF_ERROR(CompleteTrainerFlags(&flags));
  const double held_out = flags.test.empty() ? flags.test_fraction : 0.0;
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> train,
                          Dataset::Open(DatasetOptionsOf(flags, flags.train, held_out)));
  std::unique_ptr<Dataset> test;
  if (!flags.test.empty()) {
    HOTBED_ASSIGN_OR_RETURN(test, Dataset::Open(DatasetOptionsOf(flags, flags.test, 0)));
  }
  TrainOptions options = TrainOptionsOf(flags);
  LabelRange labels;
  if (flags.format == "ratings") {
    HOTBED_ASSIGN_OR_RETURN(labels, MeasureLabels(*train));
  }
  HOTBED_ASSIGN_OR_RETURN(const SavedModel saved, MakeTables(flags, labels));
  options.shape.offset = saved.offset;

  const uint64_t total =
      static_cast<uint64_t>(static_cast<double>(train->lines()) * (1.0 - held_out) *
                            static_cast<double>(options.epochs) / static_cast<double>(flags.parts));
  Progress bar(&std::cerr, isatty(STDERR_FILENO) != 0, Clock::Real(), "training", total);
  auto open_source = [&](int worker) {
    const std::string session = absl::StrCat(flags.job, "/", flags.part, ".", worker);
    std::optional<LookAheadOptions> fresh_rows;
    if (flags.fresh_rows) fresh_rows.emplace();
    return ClusterRowSource::Open(TargetOf(flags), SessionOptions(flags, session),
                                  options.layout.tables, fresh_rows);
  };
  HOTBED_ASSIGN_OR_RETURN(const TrainReport report,
                          Train(options, *train, static_cast<int>(flags.threads), open_source,
                                [&](const TrainProgress& p) {
                                  bar.Update(p.examples, ProgressNote(p, options.epochs));
                                }));
  bar.Finish();
  if (report.total.examples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no line of ", flags.train,
                     " is left to train on: all were held out, bad, or of other parts"));
  }
  HOTBED_ASSIGN_OR_RETURN(const EvalReport eval,
                          Judge(flags, options, saved, test ? *test : *train,
                                test ? Dataset::Part::kAll : Dataset::Part::kHeldOut));
  PrintResult(flags, &report, eval, train->bad_lines() + (test ? test->bad_lines() : 0));
  return absl::OkStatus();
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  hotbed::TrainerFlags flags;
  int exit_code = 0;
  if (!hotbed::LoadTrainerFlags(argc, argv, &flags, &exit_code)) return exit_code;
  const absl::Status status = hotbed::Run(flags);
  if (status.ok()) return 0;
  if (flags.json()) {
    const nlohmann::json error = {{"error",
                                   {{"code", absl::StatusCodeToString(status.code())},
                                    {"message", std::string(status.message())}}}};
    std::cerr << error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    std::cerr << "hotbed-train-ctr: " << status.message() << "\n";
  }
  return 1;
}
