// hotbed-loss-trainer: synchronous training whose loss depends on every bit of every row, for the
// comparison of a run whose shards are moved about with one whose are not.
//
//   hotbed-loss-trainer HOST:PORT TRAINERS STEPS PAUSE_MS
//
// TRAINERS threads, each a session of one group, go through STEPS steps of logistic regression on
// pooled rows of two synchronous tables (row-wise Adagrad and Adam, random first values, repeated
// ids). Stdout: `step N L0 L1 ...`, the trainers' losses as the bits of a float, and in the end
// `rows HASH`, of all rows of both tables. Two runs of equal arguments print the same. Exit status:
// 0, or 1 with what went wrong on stderr.
#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/client.h"

namespace hotbed {
namespace {

constexpr uint64_t kRows = 20000;
constexpr uint32_t kDim = 16;
constexpr uint32_t kExamples = 32;   // a batch
constexpr uint32_t kIdsExample = 6;  // of each table
constexpr uint32_t kTables = 2;

struct Plan {
  std::string coordinator;
  uint32_t trainers = 2;
  uint64_t steps = 100;
  int64_t pause_ns = 0;
};

TableOptions OptionsOf(uint32_t t) {
  TableOptions options;
  options.name = absl::StrCat("loss_", t);
  options.hashed = t == 1;
  options.rows = kRows;
  options.dim = kDim;
  options.optimizer.kind = t == 0 ? OptimizerKind::kRowwiseAdagrad : OptimizerKind::kAdam;
  options.optimizer.learning_rate = 0.05f;
  options.initializer = {InitializerKind::kNormal, 0.0f, 0.3f};
  options.consistency = Consistency::kSync;
  return options;
}

class Trainer {
 public:
  // `joined` makes all of them begin with step 1.
  Trainer(const Plan& plan, uint32_t number, std::latch* joined)
      : plan_(plan), number_(number), joined_(joined) {}

  absl::Status Train(std::vector<float>* losses) {
    absl::Status opened = Open();
    const absl::StatusOr<uint64_t> first =
        opened.ok() ? client_->JoinTrainers() : absl::StatusOr<uint64_t>(opened);
    joined_->arrive_and_wait();
    HOTBED_RETURN_IF_ERROR(first.status());
    if (*first != 1) return absl::FailedPreconditionError("the group has been at work before");
    for (uint64_t step = 1; step <= plan_.steps; ++step) {
      HOTBED_ASSIGN_OR_RETURN(const float loss, Step(step));
      losses->push_back(loss);
      if (plan_.pause_ns > 0) Clock::Real()->SleepNs(plan_.pause_ns);
    }
    return client_->LeaveTrainers();
  }

 private:
  absl::Status Open() {
    ClientOptions options;
    options.session_name = absl::StrCat("loss-trainer/", number_);
    options.trainer_group = "loss";
    options.trainer_lease = absl::Seconds(60);  // a pause is no death here
    HOTBED_ASSIGN_OR_RETURN(client_, Client::Connect("hotbed://" + plan_.coordinator, options));
    for (uint32_t t = 0; t < kTables; ++t) {
      HOTBED_ASSIGN_OR_RETURN(tables_[t], client_->OpenTable(OptionsOf(t).name));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<float> Step(uint64_t step) {
    Random random(step * 1000 + number_);
    std::vector<uint64_t> ids[kTables];
    std::vector<float> rows[kTables];
    std::vector<PullFeature> pulls(kTables);
    std::vector<PushFeature> pushes(kTables);
    for (uint32_t t = 0; t < kTables; ++t) {
      for (uint32_t i = 0; i < kExamples * kIdsExample; ++i) {
        const double u = random.Double();
        const auto row = static_cast<uint64_t>(u * u * kRows);
        ids[t].push_back(t == 0 ? row : row * 0x9e3779b97f4a7c15ull);
      }
      rows[t].resize(ids[t].size() * kDim);
      pulls[t].table = tables_[t];
      pulls[t].ids = ids[t];
      pulls[t].rows = rows[t].data();
    }
    HOTBED_RETURN_IF_ERROR(client_->BeginStep(step));
    HOTBED_RETURN_IF_ERROR(client_->Pull(pulls).Wait());
    const float loss = Gradients(&random, rows);
    for (uint32_t t = 0; t < kTables; ++t) pushes[t] = {tables_[t], ids[t], rows[t].data()};
    const PushResult pushed = client_->Push(step, pushes).Wait();
    HOTBED_RETURN_IF_ERROR(pushed.status);
    HOTBED_RETURN_IF_ERROR(client_->EndStep(step));
    return loss;
  }

  // Replaces the rows by their gradients: logit = sum over the example's rows of all columns,
  // weighed by a sign that depends on the column.
  float Gradients(Random* random, std::vector<float>* rows) const {
    float loss = 0.0f;
    for (uint32_t e = 0; e < kExamples; ++e) {
      const float label = random->OneIn(3) ? 1.0f : 0.0f;
      float logit = 0.0f;
      for (uint32_t t = 0; t < kTables; ++t) {
        const float* const first = &rows[t][e * kIdsExample * kDim];
        for (uint32_t k = 0; k < kIdsExample * kDim; ++k)
          logit += k % 3 == 0 ? -first[k] : first[k];
      }
      const float p = 1.0f / (1.0f + std::exp(-logit));
      loss -= std::log(std::max(1e-7f, label > 0.5f ? p : 1.0f - p));
      for (uint32_t t = 0; t < kTables; ++t) {
        float* const first = &rows[t][e * kIdsExample * kDim];
        for (uint32_t k = 0; k < kIdsExample * kDim; ++k) {
          first[k] = (p - label) * (k % 3 == 0 ? -1.0f : 1.0f) + 0.01f * first[k];
        }
      }
    }
    return loss / kExamples;
  }

  const Plan& plan_;
  const uint32_t number_;
  std::latch* const joined_;
  std::unique_ptr<Client> client_;
  const Table* tables_[kTables] = {};
};

absl::StatusOr<uint64_t> HashRows(const Plan& plan) {
  HOTBED_ASSIGN_OR_RETURN(auto client, Client::Connect("hotbed://" + plan.coordinator));
  uint64_t hash = 1469598103934665603ull;
  for (uint32_t t = 0; t < kTables; ++t) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, client->OpenTable(OptionsOf(t).name));
    std::vector<uint64_t> ids(kRows);
    for (uint64_t i = 0; i < kRows; ++i) ids[i] = t == 0 ? i : i * 0x9e3779b97f4a7c15ull;
    std::vector<float> rows(kRows * kDim);
    PullFeature feature;
    feature.table = table;
    feature.ids = ids;
    feature.rows = rows.data();
    HOTBED_RETURN_IF_ERROR(client->Pull({&feature, 1}).Wait());
    for (const float value : rows) {
      hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211ull;
    }
  }
  return hash;
}

absl::Status Run(const Plan& plan) {
  {
    HOTBED_ASSIGN_OR_RETURN(auto client, Client::Connect("hotbed://" + plan.coordinator));
    for (uint32_t t = 0; t < kTables; ++t) {
      HOTBED_RETURN_IF_ERROR(client->CreateTable(OptionsOf(t)).status());
    }
  }
  std::vector<std::vector<float>> losses(plan.trainers);
  std::vector<absl::Status> ended(plan.trainers);
  std::latch joined(plan.trainers);
  std::vector<std::thread> threads;
  for (uint32_t k = 0; k < plan.trainers; ++k) {
    threads.emplace_back([&, k] { ended[k] = Trainer(plan, k, &joined).Train(&losses[k]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : ended) HOTBED_RETURN_IF_ERROR(status);
  for (uint64_t step = 0; step < plan.steps; ++step) {
    std::printf("step %" PRIu64, step + 1);
    for (const auto& of_trainer : losses) {
      std::printf(" %08x", std::bit_cast<uint32_t>(of_trainer[step]));
    }
    std::printf("\n");
  }
  HOTBED_ASSIGN_OR_RETURN(const uint64_t hash, HashRows(plan));
  std::printf("rows %016" PRIx64 "\nlast loss %.4f, first %.4f\n", hash, losses[0].back(),
              losses[0].front());
  return absl::OkStatus();
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: see the head of tests/fault/loss_trainer.cc\n");
    return 2;
  }
  hotbed::Plan plan;
  plan.coordinator = argv[1];
  plan.trainers = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  plan.steps = std::strtoull(argv[3], nullptr, 10);
  plan.pause_ns = std::strtoll(argv[4], nullptr, 10) * 1'000'000;
  const absl::Status status = hotbed::Run(plan);
  if (!status.ok()) std::fprintf(stderr, "hotbed-loss-trainer: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
