#include "client/client_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

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
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate created,
                          control_->CreateTable(options, if_not_exists, options_.deadline));
  map_.Apply(created);
  return OpenTable(options.name);
}

absl::StatusOr<const Table*> ClientImpl::OpenTable(const std::string& name) {
  ClusterMapPtr map = map_.Get();
  if (map->Table(name) == nullptr) {
    HOTBED_RETURN_IF_ERROR(follower_.Refresh(options_.deadline));
    map = map_.Get();
  }
  const TableRoute* route = map->Table(name);
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "table ", name, " does not exist; create it, or see ListTables for those that do"));
  }
  return HandleOf(*route);
}

absl::Status ClientImpl::DropTable(const std::string& name) {
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate dropped, control_->DropTable(name, options_.deadline));
  map_.Apply(dropped);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TableOptions>> ClientImpl::ListTables() {
  HOTBED_RETURN_IF_ERROR(follower_.Refresh(options_.deadline));
  return map_.Get()->Specs();
}

Future<absl::Status> ClientImpl::Pull(absl::Span<const PullFeature> features,
                                      const PullOptions& options) {
  return pulls_.Start(features, options, Lane::kPull, DeadlineNs(options.deadline));
}

Future<absl::Status> ClientImpl::Lookup(absl::Span<const PullFeature> features,
                                        const PullOptions& options) {
  return pulls_.Start(features, options, Lane::kLookup, DeadlineNs(options.deadline));
}

Future<PushResult> ClientImpl::Push(uint64_t step, absl::Span<const PushFeature> features,
                                    const PushOptions& options) {
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
