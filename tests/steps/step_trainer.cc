// A trainer that a test may kill: goes through the steps of its group and tells what it did, one
// line each; and the check of what all of them left behind.
//
//   hotbed-step-trainer create|train|verify COORDINATOR CONSISTENCY TRAINERS STEPS
//                       [TRAINER PAUSE_MS]     (train)
//
// Trainer k adds 1 to kCopies rows of its own in each of two tables at step t, spread over the
// shards, and 1 to a row that all share. So the tables tell of each (trainer, step) whether it was
// applied: everywhere once, or nowhere.
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "hotbed/client.h"

namespace hotbed {
namespace {

constexpr uint64_t kCopies = 8;
constexpr uint32_t kDim = 4;

struct Plan {
  std::string coordinator;
  std::string consistency;  // sync, or the staleness
  uint64_t trainers = 0;
  uint64_t steps = 0;
  uint64_t trainer = 0;
  int pause_ms = 0;

  uint64_t shared_row() const { return kCopies * trainers * (steps + 1); }
  uint64_t RowOf(uint64_t k, uint64_t step, uint64_t copy) const {
    return copy * trainers * (steps + 1) + k * (steps + 1) + step;
  }
};

void Say(const std::string& line) {
  std::printf("%s %" PRId64 "\n", line.c_str(), Clock::Real()->NowNs());
  std::fflush(stdout);
}

TableOptions OptionsOf(const Plan& plan, const std::string& name) {
  TableOptions options;
  options.name = name;
  options.rows = plan.shared_row() + 1;
  options.dim = kDim;
  options.initializer = {InitializerKind::kZero};
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.learning_rate = 1.0f;
  if (plan.consistency == "sync") {
    options.consistency = Consistency::kSync;
  } else {
    options.consistency = Consistency::kBounded;
    options.staleness = static_cast<uint32_t>(std::atoi(plan.consistency.c_str()));
  }
  return options;
}

absl::StatusOr<std::vector<const Table*>> OpenTables(Client* client) {
  std::vector<const Table*> tables;
  for (const char* name : {"first", "second"}) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, client->OpenTable(name));
    tables.push_back(table);
  }
  return tables;
}

absl::Status Create(const Plan& plan) {
  HOTBED_ASSIGN_OR_RETURN(auto client, Client::Connect("hotbed://" + plan.coordinator));
  for (const char* name : {"first", "second"}) {
    HOTBED_RETURN_IF_ERROR(client->CreateTable(OptionsOf(plan, name)).status());
  }
  return absl::OkStatus();
}

bool MayPass(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status);
}

// One step; Aborted: the group continued without us.
absl::Status Step(const Plan& plan, Client* client, const std::vector<const Table*>& tables,
                  uint64_t step) {
  absl::Status begun = client->BeginStep(step);
  while (MayPass(begun)) begun = client->BeginStep(step);
  HOTBED_RETURN_IF_ERROR(begun);
  Say(absl::StrCat("begin ", step));
  std::vector<uint64_t> ids = {plan.shared_row()};
  for (uint64_t copy = 0; copy < kCopies; ++copy) {
    ids.push_back(plan.RowOf(plan.trainer, step, copy));
  }
  const std::vector<float> gradients(ids.size() * kDim, -1.0f);
  std::vector<PushFeature> features;
  for (const Table* table : tables) features.push_back({table, ids, gradients.data()});
  PushResult pushed = client->Push(step, features).Wait();
  while (pushed.outcome == PushResult::Outcome::kIndeterminate && MayPass(pushed.status)) {
    pushed = client->Retry(pushed).Wait();
  }
  if (!pushed.status.ok() && !absl::IsAborted(pushed.status)) return pushed.status;
  usleep(static_cast<useconds_t>(plan.pause_ms) * 1000);
  Say(absl::StrCat("ending ", step));
  absl::Status ended = client->EndStep(step);
  while (MayPass(ended)) ended = client->EndStep(step);
  HOTBED_RETURN_IF_ERROR(ended);
  // Read your writes: this step's rows are there, once.
  std::vector<float> rows(ids.size() * kDim);
  for (const Table* table : tables) {
    const PullFeature feature{table, ids, rows.data()};
    HOTBED_RETURN_IF_ERROR(client->Pull({&feature, 1}).Wait());
    for (size_t i = kDim; i < rows.size(); ++i) {
      if (rows[i] != 1.0f) {
        return absl::DataLossError(
            absl::StrCat("after step ", step, " a row of ours is ", rows[i]));
      }
    }
  }
  Say(absl::StrCat("ended ", step));
  return absl::OkStatus();
}

absl::Status Train(const Plan& plan) {
  ClientOptions options;
  options.session_name = absl::StrCat("trainer-", plan.trainer);
  options.trainer_group = "steps";
  options.deadline = absl::Seconds(10);
  HOTBED_ASSIGN_OR_RETURN(auto client, Client::Connect("hotbed://" + plan.coordinator, options));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<const Table*> tables, OpenTables(client.get()));
  while (true) {
    absl::StatusOr<uint64_t> joined = client->JoinTrainers();
    while (MayPass(joined.status())) joined = client->JoinTrainers();
    HOTBED_RETURN_IF_ERROR(joined.status());
    Say(absl::StrCat("joined ", *joined));
    uint64_t step = *joined;
    absl::Status status;
    for (; step <= plan.steps && status.ok(); ++step) {
      status = Step(plan, client.get(), tables, step);
    }
    if (absl::IsAborted(status)) {
      Say(absl::StrCat("aborted ", step - 1));
      continue;
    }
    if (status.ok()) Say("done 0");
    return status;
  }
}

absl::Status Verify(const Plan& plan) {
  HOTBED_ASSIGN_OR_RETURN(auto client, Client::Connect("hotbed://" + plan.coordinator));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<const Table*> tables, OpenTables(client.get()));
  std::vector<uint64_t> ids(plan.shared_row() + 1);
  for (uint64_t id = 0; id < ids.size(); ++id) ids[id] = id;
  std::vector<std::vector<float>> rows;
  for (const Table* table : tables) {
    std::vector<float>& all = rows.emplace_back(ids.size() * kDim);
    const PullFeature feature{table, ids, all.data()};
    HOTBED_RETURN_IF_ERROR(client->Pull({&feature, 1}).Wait());
  }
  uint64_t applied = 0;
  for (uint64_t k = 0; k < plan.trainers; ++k) {
    for (uint64_t step = 1; step <= plan.steps; ++step) {
      std::set<float> values;
      for (uint64_t copy = 0; copy < kCopies; ++copy) {
        for (const auto& all : rows) values.insert(all[plan.RowOf(k, step, copy) * kDim]);
      }
      if (values.size() != 1 || (*values.begin() != 0 && *values.begin() != 1)) {
        return absl::DataLossError(absl::StrCat("step ", step, " of trainer ", k, " was applied ",
                                                *values.begin(), " to ", *values.rbegin(),
                                                " times"));
      }
      const bool here = *values.begin() == 1;
      applied += here;
      if (here) std::printf("applied %" PRIu64 " %" PRIu64 "\n", k, step);
    }
  }
  for (const auto& all : rows) {
    const float shared = all[plan.shared_row() * kDim];
    if (shared != static_cast<float>(applied)) {
      return absl::DataLossError(
          absl::StrCat("the shared row is ", shared, ", applied were ", applied));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: see the head of tests/steps/step_trainer.cc\n");
    return 2;
  }
  const std::string command = argv[1];
  Plan plan;
  plan.coordinator = argv[2];
  plan.consistency = argv[3];
  plan.trainers = std::strtoull(argv[4], nullptr, 10);
  plan.steps = std::strtoull(argv[5], nullptr, 10);
  if (argc > 6) plan.trainer = std::strtoull(argv[6], nullptr, 10);
  if (argc > 7) plan.pause_ms = std::atoi(argv[7]);
  const absl::Status status = command == "create"  ? Create(plan)
                              : command == "train" ? Train(plan)
                                                   : Verify(plan);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", command.c_str(), status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
