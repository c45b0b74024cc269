#include "tests/parity/case_run.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/coordinator_stub.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed::parity {
namespace {

constexpr absl::Duration kRestartMax = absl::Seconds(60);
constexpr uint64_t kElementsAtOnce = 1 << 20;   // of weights set or read by one call
constexpr uint64_t kElementsRead = 1ull << 28;  // of one table, all its rows
constexpr const char* kKindWords[] = {"batch", "push", "pull", "lookup", "restart", "disconnect"};
constexpr const char* kOutcomeWords[] = {"applied", "failed", "indeterminate"};

absl::Status At(absl::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// Compares an expected error with the actual status.
absl::Status AgainstExpected(const absl::Status& status, const std::string& text) {
  if (status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("an error with '", text, "' was expected, there was none"));
  }
  if (absl::StrContains(status.message(), text)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("an error with '", text, "' was expected, it says: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> CaseRun::Connect(const std::string& session,
                                                         RowType gradient_wire,
                                                         const std::string& group) const {
  ClientOptions options;
  options.session_name = session;
  options.deadline = absl::Milliseconds(case_.options.deadline_ms);
  options.pull_type = case_.options.row_wire;
  options.push_type = gradient_wire;
  options.trainers = case_.options.trainers;
  options.trainer_group = group;
  if (case_.options.message_bytes_max > 0) {
    options.message_bytes_max = case_.options.message_bytes_max;
  }
  return Client::Connect(absl::StrCat("hotbed://", options_.coordinator), options);
}

absl::StatusOr<CaseRun::Trainer*> CaseRun::TrainerOf(uint32_t index) {
  Trainer& trainer = trainers_[index];
  if (trainer.client != nullptr) {
    HOTBED_RETURN_IF_ERROR(Settle(index, &trainer));
    return &trainer;
  }
  const std::string& group = case_.options.trainer_group;
  std::string session = case_.options.session;
  // A group takes gradients in the order of its sessions' names.
  if (session.empty() && !group.empty()) session = absl::StrCat(group, "-", getpid());
  if (!session.empty()) absl::StrAppend(&session, "/", absl::Dec(index, absl::kZeroPad3));
  HOTBED_ASSIGN_OR_RETURN(trainer.client, Connect(session, case_.options.gradient_wire, group));
  trainer.sum = std::make_unique<GradientAccumulator>();
  if (group.empty()) return &trainer;
  HOTBED_ASSIGN_OR_RETURN(const uint64_t first, trainer.client->JoinTrainers());
  trainer.last_step = std::max(first, case_.options.first_step) - 1;
  return &trainer;
}

absl::Status CaseRun::JoinAll() {
  if (case_.options.trainer_group.empty()) return absl::OkStatus();
  std::set<uint32_t> all;
  for (const CaseStep& step : case_.steps) all.insert(step.trainer);
  for (const uint32_t index : all) HOTBED_RETURN_IF_ERROR(TrainerOf(index).status());
  return absl::OkStatus();
}

void CaseRun::EndStep(Trainer* trainer, uint64_t step) const {
  if (case_.options.trainer_group.empty()) return;
  trainer->ending = std::async(
      std::launch::async, [client = trainer->client.get(), step] { return client->EndStep(step); });
}

absl::Status CaseRun::Settle(uint32_t index, Trainer* trainer) {
  if (!trainer->ending.valid()) return absl::OkStatus();
  return At(absl::StrCat("the end of step ", trainer->last_step, " of trainer ", index),
            trainer->ending.get());
}

absl::StatusOr<const Table*> CaseRun::TableOf(Trainer* trainer, const std::string& name) {
  const Table*& table = trainer->tables[name];
  if (table == nullptr) {
    HOTBED_ASSIGN_OR_RETURN(table, trainer->client->OpenTable(name));
  }
  return table;
}

absl::StatusOr<Embeddings*> CaseRun::EmbeddingsOf(Trainer* trainer) {
  if (trainer->embeddings != nullptr) return trainer->embeddings.get();
  std::vector<EmbeddingFeature> features;
  for (const CaseFeature& feature : case_.features) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, TableOf(trainer, feature.table));
    features.push_back(
        {feature.feature, table, feature.pooling, feature.output, feature.scale_by_frequency});
  }
  EmbeddingOptions options;
  options.pooling_at = case_.options.pooling_at;
  HOTBED_ASSIGN_OR_RETURN(trainer->embeddings,
                          Embeddings::Create(trainer->client.get(), std::move(features), options));
  return trainer->embeddings.get();
}

absl::Status CaseRun::CreateTables() {
  v1::CreateTablesRequest request;
  for (const CaseTable& table : case_.tables) {
    if (table.existing) continue;
    TableSpec spec = table.asked.spec;
    if (options_.column_slices > 0) spec.column_slices = options_.column_slices;
    v1::NewTable& one = *request.add_tables();
    *one.mutable_spec() = ToProto(spec);
    one.set_shards(options_.shards > 0 ? options_.shards : table.asked.shards);
  }
  if (request.tables_size() == 0) return absl::OkStatus();
  CoordinatorStub coordinator(options_.coordinator, absl::Milliseconds(case_.options.deadline_ms));
  HOTBED_ASSIGN_OR_RETURN(const v1::CreateTablesReply reply, coordinator.CreateTables(request));
  for (const v1::CreateTableReply& one : reply.tables()) {
    created_.push_back(one.spec().name());
    json_["tables"].push_back({{"name", one.spec().name()},
                               {"dim", one.spec().dim()},
                               {"rows", one.spec().rows()},
                               {"seed", one.spec().seed()},
                               {"shards", one.shards_size()}});
  }
  return absl::OkStatus();
}

// By a session of its own, so that the trainers' steps begin where the case says.
absl::Status CaseRun::SetWeights() {
  std::unique_ptr<Client> loader;
  uint64_t step = 0;
  for (size_t t = 0; t < case_.tables.size(); ++t) {
    if (!case_.tables[t].weights) continue;
    const CaseRows& given = *case_.tables[t].weights;
    if (loader == nullptr) {
      HOTBED_ASSIGN_OR_RETURN(loader, Connect("", RowType::kFp32, ""));
    }
    HOTBED_ASSIGN_OR_RETURN(const Table* table, loader->OpenTable(case_.tables[t].asked.spec.name));
    const uint64_t rows = given.all ? table->options().rows : given.ids.size();
    const uint64_t dim = table->dim();
    const std::string where = absl::StrCat("tables[", t, "].weights");
    if (given.rows.values.size() != rows * dim) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has ", given.rows.values.size(),
                                                     " elements, ", rows, " rows of ", dim,
                                                     " take ", rows * dim));
    }
    const uint64_t at_once = std::max<uint64_t>(1, kElementsAtOnce / dim);
    for (uint64_t first = 0; first < rows; first += at_once) {
      std::vector<uint64_t> ids;
      for (uint64_t r = first; r < std::min(rows, first + at_once); ++r) {
        ids.push_back(given.all ? r : given.ids[r]);
      }
      PushFeature push{table, ids, given.rows.values.data() + first * dim};
      PushOptions options;
      options.assign = true;
      HOTBED_RETURN_IF_ERROR(At(where, loader->Push(++step, {&push, 1}, options).Wait().status));
    }
  }
  return absl::OkStatus();
}

absl::Status CaseRun::Run(const absl::Status& tables_status) {
  json_["format"] = 1;
  json_["ok"] = false;
  json_["tables"] = PlanJson::array();
  absl::Status status = tables_status.ok() ? CreateTables() : tables_status;
  if (status.ok()) status = SetWeights();
  if (!status.ok()) json_["error"] = ErrorJson(status);
  if (case_.expects_error) {
    status = AgainstExpected(status, case_.expect_error);
  } else {
    if (status.ok()) status = RunSteps();
    if (status.ok()) status = ReadWeights("", case_.weights, &json_);
  }
  if (status.ok()) status = result_.status();
  json_["ok"] = status.ok();
  if (!status.ok()) json_["error"] = ErrorJson(status);
  for (const std::string& name : created_) {
    if (options_.keep) break;
    const auto trainer = TrainerOf(0);
    const absl::Status dropped =
        trainer.ok() ? (*trainer)->client->DropTable(name) : trainer.status();
    if (status.ok()) status = At(absl::StrCat("dropping table ", name), dropped);
  }
  return status;
}

absl::Status CaseRun::RunSteps() {
  json_["steps"] = PlanJson::array();
  HOTBED_RETURN_IF_ERROR(JoinAll());
  for (size_t i = 0; i < case_.steps.size(); ++i) {
    const CaseStep& step = case_.steps[i];
    PlanJson json = {{"index", i},
                     {"kind", kKindWords[static_cast<size_t>(step.kind)]},
                     {"trainer", step.trainer}};
    absl::Status status = RunStep(i, &json);
    if (!status.ok()) json["error"] = ErrorJson(status);
    if (step.expects_error) status = AgainstExpected(status, step.expect_error);
    json_["steps"].push_back(std::move(json));
    HOTBED_RETURN_IF_ERROR(At(absl::StrCat("steps[", i, "]"), status));
  }
  return absl::OkStatus();
}

absl::Status CaseRun::RunStep(size_t index, PlanJson* json) {
  const CaseStep& step = case_.steps[index];
  const std::string stem = absl::StrCat("step", index, ".");
  absl::Status status;
  switch (step.kind) {
    case StepKind::kBatch:
      status = RunBatch(stem, step, json);
      break;
    case StepKind::kPush:
      status = RunPush(step, json);
      break;
    case StepKind::kPull:
    case StepKind::kLookup:
      status = RunPull(stem, step, json);
      break;
    case StepKind::kRestart:
      status = RunRestart(step);
      break;
    case StepKind::kDisconnect:
      trainers_.erase(step.trainer);
      break;
  }
  HOTBED_RETURN_IF_ERROR(status);
  return ReadWeights(stem, step.weights, json);
}

uint64_t CaseRun::NextStep(const CaseStep& step, Trainer* trainer) const {
  if (trainer->last_step == 0) trainer->last_step = case_.options.first_step - 1;
  trainer->last_step = step.step.value_or(trainer->last_step + 1);
  return trainer->last_step;
}

PushOptions CaseRun::PushOptionsOf(const CaseStep& step) const {
  PushOptions options;
  options.has_learning_rate = step.learning_rate.has_value();
  options.learning_rate = step.learning_rate.value_or(0.0f);
  options.assign = step.assign;
  return options;
}

absl::Status CaseRun::Pushed(Trainer* trainer, const PushResult& result, PlanJson* json) {
  PlanJson& pushed = (*json)["pushed"];
  pushed = {{"step", result.step}, {"outcome", kOutcomeWords[static_cast<size_t>(result.outcome)]}};
  for (const PushResult::Shard& shard : result.shards) {
    pushed["shards"].push_back(
        {{"table", shard.table}, {"index", shard.index}, {"error", ErrorJson(shard.status)}});
  }
  if (result.status.ok()) EndStep(trainer, result.step);
  return result.status;
}

absl::Status CaseRun::RunPush(const CaseStep& step, PlanJson* json) {
  HOTBED_ASSIGN_OR_RETURN(Trainer * trainer, TrainerOf(step.trainer));
  std::vector<PushFeature> features;
  for (const CaseCall& call : step.calls) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, TableOf(trainer, call.table));
    if (call.gradients.size() != call.ids.size() * table->dim()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "push to ", call.table, ": ", call.gradients.size(), " elements, ", call.ids.size(),
          " ids of dim ", table->dim(), " take ", call.ids.size() * table->dim()));
    }
    features.push_back({table, call.ids, call.gradients.data()});
  }
  const uint64_t number = NextStep(step, trainer);
  (*json)["step"] = number;
  return Pushed(trainer, trainer->client->Push(number, features, PushOptionsOf(step)).Wait(), json);
}

absl::Status CaseRun::RunPull(const std::string& stem, const CaseStep& step, PlanJson* json) {
  HOTBED_ASSIGN_OR_RETURN(Trainer * trainer, TrainerOf(step.trainer));
  std::vector<PullFeature> features(step.calls.size());
  std::vector<std::vector<float>> rows(step.calls.size());
  std::vector<std::vector<uint8_t>> exists(step.calls.size());
  for (size_t f = 0; f < step.calls.size(); ++f) {
    const CaseCall& call = step.calls[f];
    HOTBED_ASSIGN_OR_RETURN(features[f].table, TableOf(trainer, call.table));
    rows[f].resize(call.ids.size() * features[f].table->dim());
    exists[f].resize(call.ids.size());
    features[f].ids = call.ids;
    features[f].rows = rows[f].data();
    features[f].exists = exists[f].data();
  }
  HOTBED_RETURN_IF_ERROR(step.kind == StepKind::kPull ? trainer->client->Pull(features).Wait()
                                                      : trainer->client->Lookup(features).Wait());
  for (size_t f = 0; f < features.size(); ++f) {
    const std::string part = absl::StrCat(stem, "pull", f, ".");
    const uint64_t count = exists[f].size();
    const std::vector<uint32_t> flags(exists[f].begin(), exists[f].end());
    (*json)["pull"].push_back(
        {{"table", step.calls[f].table},
         {"rows", result_.Array<float>(absl::StrCat(part, "rows"),
                                       {count, features[f].table->dim()}, rows[f])},
         {"exists", result_.Array<uint32_t>(absl::StrCat(part, "exists"), {count}, flags)}});
  }
  return absl::OkStatus();
}

absl::Status CaseRun::RunRestart(const CaseStep& step) {
  if (options_.cluster == nullptr) {
    return absl::FailedPreconditionError(
        "only a cluster of this program's own can be restarted: use --servers N, without "
        "--coordinator");
  }
  HOTBED_RETURN_IF_ERROR(options_.cluster->Restart(step.process, step.gently ? SIGTERM : SIGKILL));
  return options_.cluster->WaitReady(kRestartMax);
}

absl::Status CaseRun::ReadWeights(const std::string& stem,
                                  const std::vector<std::pair<std::string, CaseRows>>& asked,
                                  PlanJson* json) {
  if (asked.empty()) return absl::OkStatus();
  for (auto& [index, trainer] : trainers_) HOTBED_RETURN_IF_ERROR(Settle(index, &trainer));
  for (const auto& [name, rows] : asked) {
    HOTBED_RETURN_IF_ERROR(At(absl::StrCat("weights of ", name),
                              ReadTable(stem, name, rows, &(*json)["weights"][name])));
  }
  return absl::OkStatus();
}

absl::Status CaseRun::ReadTable(const std::string& stem, const std::string& name,
                                const CaseRows& asked, PlanJson* json) {
  HOTBED_ASSIGN_OR_RETURN(Trainer * trainer, TrainerOf(0));
  HOTBED_ASSIGN_OR_RETURN(const Table* table, TableOf(trainer, name));
  const uint64_t dim = table->dim();
  const uint64_t count = asked.all ? table->options().rows : asked.ids.size();
  if (asked.all && (table->options().hashed || count > kElementsRead / dim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("all rows are those of a bounded table of at most ", kElementsRead,
                     " elements: list the ids, as in {\"", name, "\": [1, 2]}"));
  }
  std::vector<float> rows(count * dim);
  std::vector<uint8_t> exists(count);
  const RowType exact = RowType::kFp32;
  const uint64_t at_once = std::max<uint64_t>(1, kElementsAtOnce / dim);
  for (uint64_t first = 0; first < count; first += at_once) {
    std::vector<uint64_t> ids;
    for (uint64_t r = first; r < std::min(count, first + at_once); ++r) {
      ids.push_back(asked.all ? r : asked.ids[r]);
    }
    PullFeature pull{table, ids, rows.data() + first * dim};
    pull.exists = exists.data() + first;
    PullOptions options;
    options.wire_type = &exact;
    HOTBED_RETURN_IF_ERROR(trainer->client->Pull({&pull, 1}, options).Wait());
  }
  const std::vector<uint32_t> flags(exists.begin(), exists.end());
  const std::string file = absl::StrCat(stem, "weights.", InFileName(name));
  *json = {{"rows", result_.Array<float>(file, {count, dim}, rows)},
           {"exists", result_.Array<uint32_t>(absl::StrCat(file, ".exists"), {count}, flags)}};
  return absl::OkStatus();
}

}  // namespace hotbed::parity
