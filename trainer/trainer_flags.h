// The options of hotbed-train-ctr, resolved and checked.
#ifndef HOTBED_TRAINER_TRAINER_FLAGS_H_
#define HOTBED_TRAINER_TRAINER_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/table_spec.h"
#include "trainer/dataset.h"
#include "trainer/train_loop.h"

namespace hotbed {

struct TrainerFlags {
  std::string coordinator = "127.0.0.1:7400";
  std::string format = "criteo";
  std::string train;
  std::string test;
  std::string score;
  bool served = false;
  std::string predictions;
  double test_fraction = 0.1;
  bool skip_bad_lines = false;
  int64_t factors = 0;  // 0: by format
  int64_t epochs = 0;
  int64_t batch_size = 0;
  double learning_rate = 0;
  double learning_rate_decay = 0;
  double l2 = -1;
  double init_deviation = 0;
  std::string optimizer;
  int64_t threads = 2;
  int64_t part = 0;
  int64_t parts = 1;
  std::string table_prefix = "ctr";
  std::string job;
  std::string durability = "log";
  int64_t seed = 1;
  std::string output = "table";
  std::string wire = "fp32";
  bool fresh_rows = false;

  bool json() const { return output == "json"; }
};

// Reads the command line, environment and file. False: the program ends with *exit_code.
bool LoadTrainerFlags(int argc, char** argv, TrainerFlags* flags, int* exit_code);

// Sets the format's defaults where the user set nothing, and checks the options against each other.
absl::Status CompleteTrainerFlags(TrainerFlags* flags);

DataFormat FormatOf(const TrainerFlags& flags);
DatasetOptions DatasetOptionsOf(const TrainerFlags& flags, const std::string& path,
                                double held_out_fraction);
TrainOptions TrainOptionsOf(const TrainerFlags& flags);
std::vector<TableSpec> TablesOf(const TrainerFlags& flags);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_TRAINER_FLAGS_H_
