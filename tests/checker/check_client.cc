#include "tests/checker/check_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed::checker {
namespace {

constexpr uint64_t kStepsBetweenReads = 6;
constexpr uint64_t kReadsBetweenDrained = 4;
constexpr int kRetriesMax = 20;
constexpr absl::Duration kConnectDeadline = absl::Seconds(60);

absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target, uint32_t client) {
  ClientOptions options;
  options.session_name = absl::StrCat("kill-checker/client-", client);
  options.deadline = kConnectDeadline;
  return Client::Connect(target, options);
}

}  // namespace

CheckClient::CheckClient(const CheckClientOptions& options, const Workload* workload)
    : options_(options), workload_(workload), random_(workload->options().seed + options.client) {}

absl::StatusOr<std::unique_ptr<CheckClient>> CheckClient::Open(const CheckClientOptions& options,
                                                               const Workload* workload) {
  std::unique_ptr<CheckClient> c(new CheckClient(options, workload));
  const std::string path =
      absl::StrCat(options.journal_dir, "/client-", options.client, ".journal");
  HOTBED_ASSIGN_OR_RETURN(c->journal_, Journal::Open(path, FileSystem::Real()));
  HOTBED_ASSIGN_OR_RETURN(c->counts_,
                          Counts::Open(CountsPath(options.journal_dir, options.client), *workload));
  c->RestoreFromJournal();
  HOTBED_ASSIGN_OR_RETURN(c->client_, Connect(options.target, options.client));
  const std::string slow = absl::StrCat(options.journal_dir, "/client-", options.client, ".slow");
  HOTBED_ASSIGN_OR_RETURN(c->slow_, SlowCalls::Open(slow, options.slow_after, c->client_.get()));
  for (uint32_t t = 0; t < workload->tables(); ++t) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, c->client_->OpenTable(workload->Table(t).name));
    c->tables_.push_back(table);
  }
  c->reads_ =
      std::make_unique<ReadCheck>(workload, options.client, c->counts_.get(), options.journal_dir);
  return c;
}

void CheckClient::RestoreFromJournal() {
  ledger_ = std::make_unique<Ledger>(workload_, options_.client, 1);
  StepBatch batch;
  for (uint64_t step = 1; step <= journal_->last_step(); ++step) {
    const bool applied = journal_->open_steps().count(step) == 0;
    if (applied) ledger_->Add(options_.client, step);
    workload_->FillRows(options_.client, step, &batch);
    counts_->Restore(batch, applied);
  }
  counts_->FinishRestore();
}

absl::Status CheckClient::Begin(uint64_t step) {
  HOTBED_RETURN_IF_ERROR(journal_->Intend(step));
  StepBatch rows;
  workload_->FillRows(options_.client, step, &rows);
  counts_->CountStarted(rows);
  Send(step);
  return absl::OkStatus();
}

void CheckClient::Send(uint64_t step) {
  auto flight = std::make_unique<Flight>();
  flight->step = step;
  workload_->Fill(options_.client, step, &flight->batch);
  std::vector<PushFeature> features;
  for (uint32_t t = 0; t < workload_->tables(); ++t) {
    StepBatch::Part& part = flight->batch.parts[t];
    features.push_back({tables_[t], part.ids, part.gradients.data()});
  }
  flight->sent_ns = Clock::Real()->NowNs();
  flight->result = client_->Push(step, features);
  NoteAnswer(*flight);
  flights_.push_back(std::move(flight));
}

void CheckClient::NoteAnswer(const Flight& flight) {
  flight.result.Then([at = flight.answered_ns](const PushResult& result) {
    if (result.outcome == PushResult::Outcome::kIndeterminate) return;
    at->store(Clock::Real()->NowNs(), std::memory_order_relaxed);
  });
}

absl::Status CheckClient::FinishOldest() {
  Flight& flight = *flights_.front();
  PushResult result = flight.result.Wait();
  for (int i = 0; result.outcome == PushResult::Outcome::kIndeterminate && i < kRetriesMax; ++i) {
    counts_->Add(Progress::kIndeterminate, 1);
    flight.result = client_->Retry(result);
    NoteAnswer(flight);
    result = flight.result.Wait();
  }
  if (result.outcome != PushResult::Outcome::kApplied) {
    counts_->Add(Progress::kErrors, 1);
    return absl::Status(
        result.status.code(),
        absl::StrCat(
            "client ", options_.client, ", step ", flight.step, ": ", result.status.message(), " [",
            absl::StrJoin(result.shards, "; ",
                          [](std::string* out, const PushResult::Shard& s) {
                            absl::StrAppend(out, s.table, "/", s.index, ": ", s.status.ToString());
                          }),
            "]"));
  }
  const int64_t now_ns = Clock::Real()->NowNs();
  const int64_t noted_ns = flight.answered_ns->load(std::memory_order_relaxed);
  const int64_t answered_ns = noted_ns == 0 ? now_ns : noted_ns;
  slow_->PushAnswered(flight.step, flight.sent_ns, answered_ns);
  HOTBED_RETURN_IF_ERROR(journal_->Applied(flight.step));
  ledger_->Add(options_.client, flight.step);
  counts_->CountAcknowledged(flight.batch);
  counts_->Add(Progress::kStepsAcknowledged, 1);
  counts_->Add(Progress::kPushesAcknowledged, workload_->tables());
  counts_->Raise(Progress::kPushMaxUs, static_cast<uint64_t>(answered_ns - flight.sent_ns) / 1000);
  counts_->Set(Progress::kLastAckNs, static_cast<uint64_t>(now_ns));
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
  uint64_t reads = 0;
  while (!stop()) {
    const uint64_t step = journal_->last_step() + 1;
    HOTBED_RETURN_IF_ERROR(Begin(step));
    if (flights_.size() >= options_.flights_max) HOTBED_RETURN_IF_ERROR(FinishOldest());
    if (step % kStepsBetweenReads == 0) {
      const bool drained = ++reads % kReadsBetweenDrained == 0;
      if (drained) HOTBED_RETURN_IF_ERROR(FinishAll());
      HOTBED_RETURN_IF_ERROR(Read(drained));
      NoteStats();
    }
  }
  return FinishAll();
}

absl::Status CheckClient::Pull(absl::Span<const PullFeature> features) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  absl::Status pulled = client_->Pull(features).Wait();
  for (int i = 0; absl::IsDeadlineExceeded(pulled) && i < kRetriesMax; ++i) {
    counts_->Add(Progress::kErrors, 1);
    pulled = client_->Pull(features).Wait();
  }
  if (!pulled.ok()) counts_->Add(Progress::kErrors, 1);
  const int64_t now_ns = Clock::Real()->NowNs();
  slow_->PullAnswered(begin_ns, now_ns);
  const int64_t us = (now_ns - begin_ns) / 1000;
  counts_->Raise(Progress::kPullMaxUs, static_cast<uint64_t>(us));
  counts_->Add(Progress::kPulls, 1);
  return pulled;
}

absl::Status CheckClient::Read(bool drained) {
  reads_->Begin(random_, /*strict=*/false);
  std::vector<std::vector<uint64_t>> ids(workload_->tables());
  std::vector<std::vector<float>> weights(workload_->tables());
  std::vector<PullFeature> features(workload_->tables());
  for (uint32_t t = 0; t < workload_->tables(); ++t) {
    for (const uint64_t row : reads_->rows(t)) ids[t].push_back(workload_->IdOf(t, row));
    weights[t].resize(ids[t].size() * workload_->options().dim);
    features[t].table = tables_[t];
    features[t].ids = ids[t];
    features[t].rows = weights[t].data();
    counts_->Add(Progress::kRowsRead, ids[t].size());
  }
  HOTBED_RETURN_IF_ERROR(Pull(features));
  return reads_->End(weights, drained ? ledger_.get() : nullptr);
}

void CheckClient::NoteStats() {
  const ClientStats stats = client_->Stats();
  counts_->Add(Progress::kRetries, stats.retries - noted_.retries);
  counts_->Add(Progress::kWrongEpoch, stats.wrong_epoch - noted_.wrong_epoch);
  counts_->Add(Progress::kReconnects, stats.reconnects - noted_.reconnects);
  noted_ = stats;
}

absl::Status CreateTables(const std::string& target, const Workload& workload) {
  ClientOptions options;
  options.deadline = kConnectDeadline;
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(target, options));
  for (uint32_t t = 0; t < workload.tables(); ++t) {
    HOTBED_RETURN_IF_ERROR(client->CreateTable(workload.Table(t), /*if_not_exists=*/true).status());
  }
  return absl::OkStatus();
}

}  // namespace hotbed::checker
