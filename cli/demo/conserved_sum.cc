#include "cli/demo/conserved_sum.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kRows = 20000;
// Above 1 MiB of weights: at least eight shards, so that every server has some.
constexpr uint32_t kDim = 16;
constexpr size_t kIdsAPush = 64;
constexpr int64_t kPauseNs =
    4'000'000;  // between pushes: most of the machine is left to the trainer
constexpr uint64_t kRowsARead = 4000;

TableSpec LedgerSpec(const std::string& name, uint32_t replicas) {
  TableSpec spec;
  spec.name = name;
  spec.rows = kRows;
  spec.dim = kDim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.initializer.kind = InitializerKind::kZero;
  spec.durability = replicas > 1 ? Durability::kReplicated : Durability::kLog;
  spec.replicas = replicas;
  return spec;
}

}  // namespace

ConservedSum::ConservedSum(std::unique_ptr<Client> client, const Table* table, uint64_t seed,
                           const Clock* clock)
    : client_(std::move(client)), table_(table), seed_(seed), clock_(clock), sums_(kRows * kDim) {}

ConservedSum::~ConservedSum() {
  stop_ = true;
  abandon_ = true;
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::unique_ptr<ConservedSum>> ConservedSum::Start(const std::string& target,
                                                                  const std::string& table,
                                                                  uint32_t replicas, uint64_t seed,
                                                                  const Clock* clock) {
  ClientOptions options;
  options.session_name = absl::StrCat(table, "/pusher");
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect(target, options));
  HOTBED_ASSIGN_OR_RETURN(const Table* made, client->CreateTable(LedgerSpec(table, replicas)));
  std::unique_ptr<ConservedSum> sum(new ConservedSum(std::move(client), made, seed, clock));
  sum->thread_ = std::thread([raw = sum.get()] { raw->PushUntilStopped(); });
  return sum;
}

void ConservedSum::PushUntilStopped() {
  for (uint64_t step = 1; !stop_ && status_.ok(); ++step) {
    status_ = PushOne(step);
    clock_->SleepNs(kPauseNs);
  }
}

absl::Status ConservedSum::PushOne(uint64_t step) {
  Random random(seed_ * 1'000'003 + step);
  std::vector<uint64_t> ids(kIdsAPush);  // duplicates happen: the client sums them
  std::vector<float> gradients(kIdsAPush * kDim);
  for (uint64_t& id : ids) id = random.Uniform(kRows);
  for (float& g : gradients) g = static_cast<float>(static_cast<int>(random.Uniform(7)) - 3);
  const int64_t start_ns = clock_->NowNs();
  const PushFeature feature{table_, ids, gradients.data()};
  PushResult result = client_->Push(step, {&feature, 1}).Wait();
  while (result.outcome == PushResult::Outcome::kIndeterminate && !abandon_) {
    {
      absl::MutexLock lock(&mutex_);
      ++phase_.errors;
    }
    result = client_->Retry(result).Wait();
  }
  longest_ns_ = std::max(longest_ns_, clock_->NowNs() - start_ns);
  if (result.outcome != PushResult::Outcome::kApplied) {
    return absl::Status(
        result.status.code(),
        absl::StrCat("push ", step, " of the ledger was not applied: ", result.status.message()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    for (uint32_t c = 0; c < kDim; ++c) {
      sums_[ids[i] * kDim + c] -= static_cast<int32_t>(gradients[i * kDim + c]);
    }
  }
  rows_ += ids.size();
  ++pushes_;
  Note(start_ns, &Phase::pushes, &Phase::longest_push_seconds);
  return PullAgain(ids);
}

absl::Status ConservedSum::PullAgain(const std::vector<uint64_t>& ids) {
  std::vector<float> rows(ids.size() * kDim);
  const PullFeature feature{table_, ids, rows.data()};
  const int64_t start_ns = clock_->NowNs();
  HOTBED_RETURN_IF_ERROR(client_->Pull({&feature, 1}).Wait());
  for (size_t i = 0; i < rows.size(); ++i) {
    const float wanted = static_cast<float>(sums_[ids[i / kDim] * kDim + i % kDim]);
    if (rows[i] == wanted) continue;
    return absl::DataLossError(absl::StrCat("row ", ids[i / kDim], " column ", i % kDim,
                                            " was pulled as ", rows[i],
                                            ", the acknowledged pushes add up to ", wanted));
  }
  Note(start_ns, &Phase::pulls, &Phase::longest_pull_seconds);
  return absl::OkStatus();
}

void ConservedSum::Note(int64_t start_ns, uint64_t Phase::*count, double Phase::*longest) {
  const double seconds = static_cast<double>(clock_->NowNs() - start_ns) * 1e-9;
  absl::MutexLock lock(&mutex_);
  ++(phase_.*count);
  phase_.*longest = std::max(phase_.*longest, seconds);
}

ConservedSum::Phase ConservedSum::TakePhase() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(phase_, Phase());
}

absl::StatusOr<ConservedSum::Report> ConservedSum::StopAndCheck() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  HOTBED_RETURN_IF_ERROR(status_);
  Report report;
  report.pushes = pushes_;
  report.rows = rows_;
  report.longest_push_seconds = static_cast<double>(longest_ns_) * 1e-9;
  std::vector<float> weights(kRowsARead * kDim);
  std::vector<uint64_t> ids(kRowsARead);
  for (uint64_t first = 0; first < kRows; first += kRowsARead) {
    for (uint64_t i = 0; i < kRowsARead; ++i) ids[i] = first + i;
    const PullFeature feature{table_, ids, weights.data()};
    HOTBED_RETURN_IF_ERROR(client_->Pull({&feature, 1}).Wait());
    for (size_t i = 0; i < weights.size(); ++i) {
      const size_t at = first * kDim + i;
      if (weights[i] == static_cast<float>(sums_[at])) continue;
      return absl::DataLossError(absl::StrCat("row ", at / kDim, " column ", at % kDim,
                                              " of table ", table_->name(), " is ", weights[i],
                                              ", the acknowledged pushes add up to ", sums_[at]));
    }
    report.weights_checked += weights.size();
  }
  report.retries = client_->Stats().retries;
  return report;
}

}  // namespace hotbed
