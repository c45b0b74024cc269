// Runs a case against a cluster through the public client: creates its tables, sets their weights,
// takes its steps in order, reads what is asked for.
//
// Trainers of a group (options.trainer_group) join before the first step; each ends a step when its
// push is answered, in the background, since that waits for the others. It is settled before the
// trainer's next step and before weights are read.
//
// Thread rule: one run is for one thread.
#ifndef HOTBED_TESTS_PARITY_CASE_RUN_H_
#define HOTBED_TESTS_PARITY_CASE_RUN_H_

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/cluster/local_cluster.h"
#include "hotbed/client.h"
#include "hotbed/embedding.h"
#include "tests/parity/case_file.h"
#include "tests/parity/case_result.h"

namespace hotbed::parity {

struct RunOptions {
  std::string coordinator;          // HOST:PORT
  LocalCluster* cluster = nullptr;  // ours to restart; null: somebody else's
  // What a placement test varies without touching the case; 0: as the case says.
  uint32_t shards = 0;
  uint32_t column_slices = 0;
  bool keep = false;  // the tables at the end
};

class CaseRun {
 public:
  // All must outlive this.
  CaseRun(const ParityCase* input, const RunOptions* options, CaseResult* result)
      : case_(*input), options_(*options), result_(*result) {}

  // Runs to the end or to the first error that the case does not expect. What happened is in
  // json(), the errors too; the status is the unexpected one.
  absl::Status Run(const absl::Status& tables_status);
  const PlanJson& json() const { return json_; }

 private:
  struct Trainer {
    std::unique_ptr<Client> client;
    std::map<std::string, const Table*> tables;
    std::unique_ptr<Embeddings> embeddings;
    std::unique_ptr<GradientAccumulator> sum;
    uint64_t last_step = 0;
    // In a group: the end of the last step, which waits for the other trainers.
    std::future<absl::Status> ending;
  };

  absl::Status CreateTables();
  absl::Status SetWeights();
  absl::Status RunSteps();
  absl::Status RunStep(size_t index, PlanJson* json);
  absl::Status RunBatch(const std::string& stem, const CaseStep& step, PlanJson* json);
  absl::Status Backward(const std::string& stem, const CaseStep& step, const JaggedBatch& batch,
                        const EmbeddingOutput& output, PlanJson* json);
  absl::Status RunPush(const CaseStep& step, PlanJson* json);
  absl::Status RunPull(const std::string& stem, const CaseStep& step, PlanJson* json);
  absl::Status RunRestart(const CaseStep& step);
  absl::Status ReadWeights(const std::string& stem,
                           const std::vector<std::pair<std::string, CaseRows>>& asked,
                           PlanJson* json);
  absl::Status ReadTable(const std::string& stem, const std::string& name, const CaseRows& asked,
                         PlanJson* json);

  absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& session, RowType gradient_wire,
                                                  const std::string& group) const;
  absl::StatusOr<Trainer*> TrainerOf(uint32_t index);
  absl::Status JoinAll();
  void EndStep(Trainer* trainer, uint64_t step) const;
  static absl::Status Settle(uint32_t index, Trainer* trainer);
  absl::StatusOr<const Table*> TableOf(Trainer* trainer, const std::string& name);
  absl::StatusOr<Embeddings*> EmbeddingsOf(Trainer* trainer);
  absl::Status Pushed(Trainer* trainer, const PushResult& result, PlanJson* json);
  uint64_t NextStep(const CaseStep& step, Trainer* trainer) const;
  PushOptions PushOptionsOf(const CaseStep& step) const;

  const ParityCase& case_;
  const RunOptions& options_;
  CaseResult& result_;
  PlanJson json_ = PlanJson::object();
  std::map<uint32_t, Trainer> trainers_;
  std::vector<std::string> created_;
};

// The outputs' gradients that a step asks for, in the order and shapes of `output`, and the loss
// (double precision) where the step names one.
struct StepGradients {
  std::vector<float> values;
  std::vector<std::vector<float>> sequences;  // one per feature
  bool has_loss = false;
  double loss = 0;
};

// Pure. InvalidArgument names the array and both sizes.
//   sum     L = scale * sum of all outputs            d = scale
//   mean    L = scale * sum / number of outputs       d = scale / number
//   square  L = scale * sum of squares / 2            d = scale * output
absl::StatusOr<StepGradients> GradientsOf(const CaseGradients& asked,
                                          const EmbeddingOutput& output);

}  // namespace hotbed::parity

#endif  // HOTBED_TESTS_PARITY_CASE_RUN_H_
