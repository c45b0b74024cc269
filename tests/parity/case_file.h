// A parity case: tables, features, and the steps of one or more trainers, as docs/parity.md
// describes the JSON. This is the case as values; case_run.h runs it.
#ifndef HOTBED_TESTS_PARITY_CASE_FILE_H_
#define HOTBED_TESTS_PARITY_CASE_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/tables/table_file.h"
#include "hotbed/embedding.h"
#include "planner/json/parse_json.h"
#include "tests/parity/case_values.h"

namespace hotbed::parity {

// Rows of a table. No ids: all of 0..rows-1, in order.
struct CaseRows {
  std::vector<uint64_t> ids;
  bool all = true;
  FloatArray rows;
};

struct CaseTable {
  AskedTable asked;
  bool existing = false;  // opened, not created: a run before this one kept it
  std::optional<CaseRows> weights;
};

struct CaseFeature {
  std::string feature;
  std::string table;
  Pooling pooling = Pooling::kSum;
  std::string output;
  bool scale_by_frequency = false;
};

struct CaseOptions {
  std::string session;  // empty: one of its own
  PoolingPlace pooling_at = PoolingPlace::kAuto;
  RowType row_wire = RowType::kFp32;
  RowType gradient_wire = RowType::kFp32;
  uint64_t message_bytes_max = 0;  // 0: the client's default
  uint32_t deadline_ms = 20'000;   // of each call
  uint32_t accumulate = 1;         // batches a push
  float accumulate_scale = 1.0f;   // of each batch's gradients
  uint64_t first_step = 1;
  uint32_t trainers = 1;  // ClientOptions::trainers
  std::string trainer_group;
};

enum class StepKind : uint8_t { kBatch, kPush, kPull, kLookup, kRestart, kDisconnect };
enum class BackwardWay : uint8_t { kFused, kGradients, kNone };
enum class LossKind : uint8_t { kGiven, kSum, kMean, kSquare };

struct CaseBatch {
  std::vector<std::string> keys;
  bool has_offsets = false;
  std::vector<uint32_t> lengths;
  std::vector<int64_t> offsets;
  std::vector<uint64_t> ids;
  std::vector<float> weights;
};

struct CaseGradients {
  LossKind loss = LossKind::kSum;
  float scale = 1.0f;
  FloatArray values;
  std::map<std::string, FloatArray> sequences;  // by output name
};

// One feature of a push, a pull or a lookup below the level of Embeddings.
struct CaseCall {
  std::string table;
  std::vector<uint64_t> ids;
  std::vector<float> gradients;  // push
};

struct CaseStep {
  StepKind kind = StepKind::kBatch;
  uint32_t trainer = 0;
  std::optional<uint64_t> step;  // none: the trainer's last one + 1
  std::string expect_error;      // part of the text; empty: the step must succeed
  bool expects_error = false;

  CaseBatch batch;
  std::optional<CaseGradients> gradients;
  BackwardWay backward = BackwardWay::kFused;
  std::optional<float> learning_rate;
  float clip_global_norm = 0.0f;
  float gradient_scale = 1.0f;
  bool row_gradients = false;  // write them out

  std::vector<CaseCall> calls;
  bool assign = false;

  std::string process;  // kRestart: "all", "s0", "coordinator"
  bool gently = false;  // kRestart: SIGTERM, else SIGKILL

  std::vector<std::pair<std::string, CaseRows>> weights;  // to read when the step is done
};

struct ParityCase {
  std::vector<CaseTable> tables;
  std::vector<CaseFeature> features;
  CaseOptions options;
  std::vector<CaseStep> steps;
  std::vector<std::pair<std::string, CaseRows>> weights;  // to read at the end
  std::string expect_error;                               // of the tables' creation
  bool expects_error = false;
};

// `dir` is where the .npy files stand. InvalidArgument names the field by its path, as in
// steps[2].batch.lengths, and says the value and what is allowed. `tables_status` is what is wrong
// with the tables' options alone, which a case may expect.
absl::StatusOr<ParityCase> ReadCase(absl::string_view text, const std::string& dir,
                                    absl::Status* tables_status);

extern const std::vector<std::string> kPoolingWords;       // sum mean max none
extern const std::vector<std::string> kPoolingPlaceWords;  // auto server client
extern const std::vector<std::string> kRowTypeWords;       // fp32 fp16 bf16 int8

}  // namespace hotbed::parity

#endif  // HOTBED_TESTS_PARITY_CASE_FILE_H_
