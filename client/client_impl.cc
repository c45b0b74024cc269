#include "client/client_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/composed/composed_calls.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"

namespace hotbed {
namespace {

absl::Status BadOption(absl::string_view name, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("ClientOptions::", name, " is ", value, "; allowed: ", allowed));
}

template <typename Number>
absl::Status CheckRange(absl::string_view name, Number value, int64_t min, int64_t max) {
  if (std::cmp_greater_equal(value, min) && std::cmp_less_equal(value, max)) {
    return absl::OkStatus();
  }
  return BadOption(name, absl::StrCat(value), absl::StrCat(min, "..", max));
}

std::string SessionNameOf(const ClientOptions& options, uint64_t seed) {
  return options.session_name.empty() ? absl::StrFormat("anonymous-%016x", seed)
                                      : options.session_name;
}

}  // namespace

absl::Status ValidateClientOptions(const ClientOptions& o) {
  HOTBED_RETURN_IF_ERROR(CheckRange("message_bytes_max", o.message_bytes_max, 64 << 10, 64 << 20));
  HOTBED_RETURN_IF_ERROR(CheckRange("pulls_in_flight_max", o.pulls_in_flight_max, 1, 65536));
  HOTBED_RETURN_IF_ERROR(CheckRange("pushes_in_flight_max", o.pushes_in_flight_max, 1, 65536));
  HOTBED_RETURN_IF_ERROR(CheckRange("threads", o.threads, 1, 64));
  HOTBED_RETURN_IF_ERROR(CheckRange("trainers", o.trainers, 1, 65536));
  if (o.push_type == RowType::kInt8) {
    return BadOption("push_type", "kInt8", "kFp32, kFp16, kBf16 (gradients do not travel as int8)");
  }
  if (o.trainer_lease != absl::ZeroDuration() &&
      (o.trainer_lease < absl::Milliseconds(100) || o.trainer_lease > absl::Minutes(10))) {
    return BadOption("trainer_lease", absl::FormatDuration(o.trainer_lease),
                     "0 (the coordinator's), 100ms..10m");
  }
  if (o.deadline <= absl::ZeroDuration()) {
    return BadOption("deadline", absl::FormatDuration(o.deadline), "above zero");
  }
  return absl::OkStatus();
}

ClientImpl::ClientImpl(const ClientOptions& options, std::unique_ptr<ControlPlane> control,
                       std::unique_ptr<Transport> transport, const Clock* clock, uint64_t seed)
    : options_(options),
      clock_(clock),
      control_(std::move(control)),
      transport_(std::move(transport)),
      follower_(control_.get(), &map_,
                [this](const std::string& address) { transport_->Abandon(address); }),
      retry_(seed),
      parts_({.options = &options_,
              .owner = this,
              .clock = clock,
              .map = &map_,
              .follower = &follower_,
              .transport = transport_.get(),
              .timer = &timer_,
              .retry = &retry_,
              .counters = &counters_}),
      pulls_(parts_, &reads_),
      session_(SessionNameOf(options, seed), control_.get(), transport_.get(), clock),
      pushes_(parts_, &session_),
      delivery_(parts_, [this] { return Handles(); }),
      trainer_(&options_, clock, control_.get(), &session_, &pushes_, &delivery_,
               [this] { return Handles(); }),
      timer_(clock, [this] {
        pulls_.Tick();
        pushes_.Tick();
      }) {}

ClientImpl::~ClientImpl() {
  trainer_.Stop();
  follower_.Stop();
  pulls_.Shutdown();
  pushes_.Shutdown();
  timer_.Stop();
  transport_.reset();  // brings the last answers, which the engines still take
}

int64_t ClientImpl::DeadlineNs(absl::Duration deadline) const {
  const absl::Duration d = deadline == absl::ZeroDuration() ? options_.deadline : deadline;
  const int64_t ns = std::clamp<int64_t>(absl::ToInt64Nanoseconds(d), 0, int64_t{1} << 60);
  return clock_->NowNs() + ns;
}

CheckpointCluster* ClientImpl::KeptWholeTables() {
  absl::MutexLock lock(&mu_);
  if (whole_tables_ == nullptr) whole_tables_ = control_->WholeTables();
  return whole_tables_.get();
}

absl::Status ClientImpl::Start() {
  HOTBED_RETURN_IF_ERROR(follower_.Start(options_.deadline));
  transport_->SetClusterId(map_.Get()->cluster_id());
  return absl::OkStatus();
}

const Table* ClientImpl::HandleOf(const TableRoute& route) {
  absl::MutexLock lock(&mu_);
  std::unique_ptr<TableHandle>& handle = tables_[route.spec.id];
  if (handle == nullptr) {
    handle =
        std::make_unique<TableHandle>(this, route.spec, static_cast<uint32_t>(route.shards.size()));
  }
  return handle.get();
}

absl::StatusOr<const Table*> ClientImpl::CreateTable(const TableOptions& options,
                                                     bool if_not_exists) {
  HOTBED_RETURN_IF_ERROR(ValidateTableSpec(options));
  if (IsComposed(options)) {
    const bool ordered = options.composition.form == ComposeForm::kFrequency;
    if (ordered && !(if_not_exists && OpenTable(options.name).ok())) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", options.name,
                       "\": compose is frequency, which needs the counts of ids: give a histogram "
                       "(CreateTableByFrequency)"));
    }
    HOTBED_RETURN_IF_ERROR(CreateParts(options, if_not_exists));
  } else {
    HOTBED_ASSIGN_OR_RETURN(const MapUpdate created,
                            control_->CreateTable(options, if_not_exists, options_.deadline));
    map_.Apply(created);
  }
  return OpenTable(options.name);
}

absl::Status ClientImpl::CreateParts(const TableOptions& composed, bool if_not_exists) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<TableSpec> parts, PartsOf(composed));
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate created,
                          control_->CreateTables(parts, if_not_exists, options_.deadline));
  map_.Apply(created);
  return absl::OkStatus();
}

absl::StatusOr<const Table*> ClientImpl::OpenTable(const std::string& name) {
  ClusterMapPtr map = map_.Get();
  for (int tries = 0; map->Table(name) == nullptr && tries < 2; ++tries) {
    HOTBED_ASSIGN_OR_RETURN(const Table* composed, OpenComposed(name));
    if (composed != nullptr) return composed;
    if (tries == 0) HOTBED_RETURN_IF_ERROR(follower_.Refresh(options_.deadline));
    map = map_.Get();
  }
  const TableRoute* route = map->Table(name);
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "table ", name, " does not exist; create it, or see ListTables for those that do"));
  }
  return HandleOf(*route);
}

absl::StatusOr<const Table*> ClientImpl::OpenComposed(const std::string& name) {
  const ClusterMapPtr map = map_.Get();
  const std::vector<TableSpec> specs = PartsByName(map->Specs(), name);
  if (specs.empty()) return nullptr;
  {
    absl::MutexLock lock(&mu_);
    const auto known = composed_.find(specs.front().id);
    if (known != composed_.end()) return known->second.get();
  }
  std::vector<const Table*> parts;
  for (const TableSpec& spec : specs) {
    const TableRoute* const route = map->Table(spec.id);
    if (route == nullptr) return nullptr;
    parts.push_back(HandleOf(*route));
  }
  std::vector<uint32_t> ranks;
  if (specs.front().composition.form == ComposeForm::kFrequency) {
    HOTBED_ASSIGN_OR_RETURN(ranks, ReadRanks(parts.front()));
  }
  auto made = std::make_unique<ComposedHandle>(this, specs, std::move(parts), std::move(ranks));
  absl::MutexLock lock(&mu_);
  std::unique_ptr<ComposedHandle>& kept = composed_[specs.front().id];
  if (kept == nullptr) kept = std::move(made);
  return kept.get();
}

// The index of frequency blocks: by id, its place in their order.
absl::StatusOr<std::vector<uint32_t>> ClientImpl::ReadRanks(const Table* index) {
  constexpr uint64_t kIdsPerPull = 1 << 16;
  const uint64_t rows = index->options().rows;
  std::vector<uint32_t> ranks(rows);
  std::vector<bool> taken(rows);
  std::vector<uint64_t> ids;
  std::vector<float> numbers(2 * kIdsPerPull);
  constexpr RowType kExact = RowType::kFp32;
  PullOptions options;
  options.wire_type = &kExact;
  for (uint64_t first = 0; first < rows; first += kIdsPerPull) {
    ids.resize(std::min(kIdsPerPull, rows - first));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
    PullFeature pull{index, ids, numbers.data()};
    pull.distinct = true;
    HOTBED_RETURN_IF_ERROR(
        pulls_.Start({&pull, 1}, options, Lane::kPull, DeadlineNs(absl::ZeroDuration())).Wait());
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto rank = static_cast<uint64_t>(numbers[2 * i]) * kIndexBase +
                        static_cast<uint64_t>(numbers[2 * i + 1]);
      if (rank >= rows || taken[rank]) {
        return absl::FailedPreconditionError(absl::StrCat(
            "table ", index->name(), " has no order of the ids: id ", ids[i], " has rank ", rank,
            rank < rows ? ", as another one" : "", "; its creation was cut short: drop ",
            index->options().composition.table, " and create it from its histogram again"));
      }
      taken[rank] = true;
      ranks[ids[i]] = static_cast<uint32_t>(rank);
    }
  }
  return ranks;
}

absl::Status ClientImpl::DropTable(const std::string& name) {
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate dropped, control_->DropTable(name, options_.deadline));
  map_.Apply(dropped);
  return absl::OkStatus();
}

absl::StatusOr<SessionIdentity> ClientImpl::OpenSession(const std::string& part) {
  return control_->OpenSession(absl::StrCat(session_.name(), "/", part), options_.deadline);
}

absl::StatusOr<std::vector<TableOptions>> ClientImpl::ListTables() {
  HOTBED_RETURN_IF_ERROR(follower_.Refresh(options_.deadline));
  std::vector<TableOptions> tables = map_.Get()->Specs();
  for (const std::vector<TableSpec>& parts : ComposedTablesOf(tables)) {
    tables.push_back(ComposedOf(parts));
  }
  return tables;
}

Future<absl::Status> ClientImpl::Pull(absl::Span<const PullFeature> features,
                                      const PullOptions& options) {
  return PullRows(features, options, Lane::kPull);
}

Future<absl::Status> ClientImpl::Lookup(absl::Span<const PullFeature> features,
                                        const PullOptions& options) {
  return PullRows(features, options, Lane::kLookup);
}

Future<absl::Status> ClientImpl::PullRows(absl::Span<const PullFeature> features,
                                          const PullOptions& options, Lane lane) {
  const int64_t deadline_ns = DeadlineNs(options.deadline);
  if (!AnyComposed(features)) return pulls_.Start(features, options, lane, deadline_ns);
  const RowType wire_type = options.wire_type != nullptr ? *options.wire_type : options_.pull_type;
  absl::StatusOr<std::unique_ptr<ComposedPull>> composed =
      ComposedPull::Plan(features, wire_type, this, &counters_);
  if (!composed.ok()) return Future<absl::Status>::Ready(composed.status());
  if ((*composed)->pulls().empty()) {
    (*composed)->Finish();
    return Future<absl::Status>::Ready(absl::OkStatus());
  }
  const Future<absl::Status> pulled =
      pulls_.Start((*composed)->pulls(), options, lane, deadline_ns);
  Promise<absl::Status> promise(pulled.driver());
  Future<absl::Status> future = promise.future();
  pulled.Then([composed = *std::move(composed),
               promise = std::move(promise)](const absl::Status& answer) mutable {
    if (answer.ok()) composed->Finish();
    promise.Set(answer);
  });
  return future;
}

Future<PushResult> ClientImpl::Push(uint64_t step, absl::Span<const PushFeature> features,
                                    const PushOptions& options) {
  std::unique_ptr<ComposedPush> composed;
  if (AnyComposed(features)) {
    absl::StatusOr<std::unique_ptr<ComposedPush>> planned =
        ComposedPush::Plan(features, options, this);
    if (!planned.ok()) return PushEngine::Refuse(step, planned.status());
    composed = *std::move(planned);
    constexpr RowType kExact = RowType::kFp32;
    PullOptions exact;
    exact.wire_type = &kExact;
    if (!composed->pulls().empty()) {
      const absl::Status pulled =
          pulls_.Start(composed->pulls(), exact, Lane::kPull, DeadlineNs(options.deadline)).Wait();
      if (!pulled.ok()) return PushEngine::Refuse(step, pulled);
    }
    features = composed->Pushes();
  }
  absl::Status admitted = trainer_.AdmitPush(step, features, options, DeadlineNs(options.deadline));
  if (!admitted.ok()) return PushEngine::Refuse(step, std::move(admitted));
  // A push that had to wait for other trainers has its whole deadline again.
  return pushes_.Start(step, features, options, DeadlineNs(options.deadline));
}

std::vector<const TableHandle*> ClientImpl::Handles() {
  absl::MutexLock lock(&mu_);
  std::vector<const TableHandle*> handles;
  for (const auto& [id, handle] : tables_) handles.push_back(handle.get());
  return handles;
}

absl::StatusOr<uint64_t> ClientImpl::JoinTrainers(absl::Duration deadline) {
  return trainer_.Join(DeadlineNs(deadline));
}

absl::Status ClientImpl::BeginStep(uint64_t step, absl::Duration deadline) {
  return trainer_.Begin(step, DeadlineNs(deadline));
}

absl::Status ClientImpl::EndStep(uint64_t step, absl::Duration deadline) {
  return trainer_.End(step, DeadlineNs(deadline));
}

absl::Status ClientImpl::LeaveTrainers(absl::Duration deadline) {
  return trainer_.Leave(DeadlineNs(deadline));
}

// Deletes take no part in the steps of a group: like assigned rows, they take effect at once.
Future<PushResult> ClientImpl::Delete(uint64_t step, const Table* table,
                                      absl::Span<const uint64_t> ids, absl::Duration deadline) {
  const PushFeature feature{.table = table, .ids = ids};
  return pushes_.Start(step, {&feature, 1}, {}, DeadlineNs(deadline), /*deletes=*/true);
}

Future<PushResult> ClientImpl::Retry(const PushResult& result, absl::Duration deadline) {
  return pushes_.Retry(result, DeadlineNs(deadline));
}

std::vector<PushResult> ClientImpl::UnansweredPushes(absl::Duration at_least) const {
  return pushes_.Unanswered(at_least);
}

ClientStats ClientImpl::Stats() const {
  ClientStats stats = transport_->Stats();
  stats.ids_asked = counters_.ids_asked.load();
  stats.ids_zeroed = counters_.ids_zeroed.load();
  stats.rows_pulled = counters_.rows_pulled.load();
  stats.rows_pushed = counters_.rows_pushed.load();
  stats.retries = counters_.retries.load();
  stats.wrong_epoch = counters_.wrong_epoch.load();
  stats.hedges = counters_.hedges.load();
  stats.hedges_of_silent = counters_.hedges_of_silent.load();
  stats.hedges_won = counters_.hedges_won.load();
  stats.rows_missing = counters_.rows_missing.load();
  return stats;
}

}  // namespace hotbed
