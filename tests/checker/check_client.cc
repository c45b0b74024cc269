#include "tests/checker/check_client.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace hotbed::checker {
namespace {

constexpr size_t kFlightsMax = 4;
constexpr uint64_t kStepsBetweenReads = 24;
constexpr uint64_t kRowsRead = 64;
constexpr int kRetriesMax = 20;
constexpr absl::Duration kConnectDeadline = absl::Seconds(60);

absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target, uint32_t client) {
  ClientOptions options;
  options.session_name = absl::StrCat("kill-checker/client-", client);
  options.deadline = kConnectDeadline;
  return Client::Connect(target, options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckClient>> CheckClient::Open(const std::string& target,
                                                               const std::string& journal_dir,
                                                               const Workload* workload,
                                                               uint32_t client) {
  std::unique_ptr<CheckClient> c(new CheckClient(workload, client));
  HOTBED_ASSIGN_OR_RETURN(
      c->journal_,
      Journal::Open(absl::StrCat(journal_dir, "/client-", client, ".journal"), FileSystem::Real()));
  HOTBED_ASSIGN_OR_RETURN(c->client_, Connect(target, client));
  for (uint32_t t = 0; t < kTables; ++t) {
    HOTBED_ASSIGN_OR_RETURN(c->tables_[t], c->client_->OpenTable(workload->Table(t).name));
  }
  c->ledger_ = std::make_unique<Ledger>(workload, client, 1);
  for (uint64_t step = 1; step <= c->journal_->last_step(); ++step) {
    if (c->journal_->open_steps().count(step) == 0) c->ledger_->Add(client, step);
  }
  return c;
}

void CheckClient::Send(uint64_t step) {
  auto flight = std::make_unique<Flight>();
  flight->step = step;
  workload_->Fill(number_, step, &flight->batch);
  std::array<PushFeature, kTables> features;
  for (uint32_t t = 0; t < kTables; ++t) {
    StepBatch::Part& part = flight->batch.parts[t];
    features[t] = {tables_[t], part.ids, part.gradients.data()};
  }
  flight->result = client_->Push(step, features);
  flights_.push_back(std::move(flight));
}

absl::Status CheckClient::FinishOldest() {
  Flight& flight = *flights_.front();
  PushResult result = flight.result.Wait();
  for (int i = 0; result.outcome == PushResult::Outcome::kIndeterminate && i < kRetriesMax; ++i) {
    result = client_->Retry(result).Wait();
  }
  if (result.outcome != PushResult::Outcome::kApplied) {
    return absl::Status(
        result.status.code(),
        absl::StrCat(
            "client ", number_, ", step ", flight.step, ": ", result.status.message(), " [",
            absl::StrJoin(result.shards, "; ",
                          [](std::string* out, const PushResult::Shard& s) {
                            absl::StrAppend(out, s.table, "/", s.index, ": ", s.status.ToString());
                          }),
            "]"));
  }
  HOTBED_RETURN_IF_ERROR(journal_->Applied(flight.step));
  ledger_->Add(number_, flight.step);
  flights_.pop_front();
  return absl::OkStatus();
}

absl::Status CheckClient::FinishAll() {
  while (!flights_.empty()) HOTBED_RETURN_IF_ERROR(FinishOldest());
  return absl::OkStatus();
}

absl::Status CheckClient::Resolve() {
  const std::set<uint64_t> open = journal_->open_steps();
  for (const uint64_t step : open) Send(step);
  return FinishAll();
}

absl::Status CheckClient::Work(const std::function<bool()>& stop) {
  while (!stop()) {
    const uint64_t step = journal_->last_step() + 1;
    HOTBED_RETURN_IF_ERROR(journal_->Intend(step));
    Send(step);
    if (flights_.size() >= kFlightsMax) HOTBED_RETURN_IF_ERROR(FinishOldest());
    if (step % kStepsBetweenReads == 0) {
      HOTBED_RETURN_IF_ERROR(FinishAll());
      HOTBED_RETURN_IF_ERROR(CheckReads());
    }
  }
  return FinishAll();
}

// With nothing of ours in flight our columns are known exactly; of the others' we know that no row
// is torn.
absl::Status CheckClient::CheckReads() {
  const uint32_t dim = workload_->options().dim;
  std::array<std::vector<uint64_t>, kTables> rows;
  std::array<std::vector<uint64_t>, kTables> ids;
  std::array<std::vector<float>, kTables> weights;
  std::array<PullFeature, kTables> features;
  for (uint32_t t = 0; t < kTables; ++t) {
    for (uint64_t i = 0; i < kRowsRead; ++i) {
      rows[t].push_back(random_.Uniform(i % 2 == 0 ? workload_->options().rows
                                                   : workload_->options().rows / 64 + 1));
      ids[t].push_back(workload_->IdOf(t, rows[t].back()));
    }
    weights[t].resize(ids[t].size() * dim);
    features[t].table = tables_[t];
    features[t].ids = ids[t];
    features[t].rows = weights[t].data();
  }
  HOTBED_RETURN_IF_ERROR(client_->Pull(features).Wait());
  for (uint32_t t = 0; t < kTables; ++t) {
    for (uint64_t i = 0; i < kRowsRead; ++i) {
      HOTBED_RETURN_IF_ERROR(CheckRow(t, rows[t][i], &weights[t][i * dim]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckClient::CheckRow(uint32_t table, uint64_t row, const float* weights) const {
  const int64_t tag = Contribution(table, row, 1)[3];
  for (uint32_t c = 0; c < workload_->options().clients; ++c) {
    const float* columns = weights + kColumns * c;
    if (-columns[3] != static_cast<float>(-static_cast<int64_t>(columns[0]) * tag)) {
      return absl::DataLossError(absl::StrCat(
          workload_->Table(table).name, " row ", row, ", columns of client ", c, ": ", -columns[0],
          " updates, but tags of ", -columns[3], " where each adds ", tag, ": torn or misrouted"));
    }
  }
  const absl::Span<const int64_t> want = ledger_->Of(table, row, number_);
  for (uint32_t k = 0; k < kColumns; ++k) {
    const float found = -weights[kColumns * number_ + k];
    if (found == static_cast<float>(want[k])) continue;
    return absl::DataLossError(absl::StrCat(workload_->Table(table).name, " row ", row, ": client ",
                                            number_, " reads ", found, " in column ", k,
                                            " after acknowledgements of ", want[k]));
  }
  return absl::OkStatus();
}

absl::Status CreateTables(const std::string& target, const Workload& workload) {
  ClientOptions options;
  options.deadline = kConnectDeadline;
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(target, options));
  for (uint32_t t = 0; t < kTables; ++t) {
    HOTBED_RETURN_IF_ERROR(client->CreateTable(workload.Table(t), /*if_not_exists=*/true).status());
  }
  return absl::OkStatus();
}

}  // namespace hotbed::checker
