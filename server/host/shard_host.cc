// Opening a data directory, the data plane and the status of the shard host.
#include "server/host/shard_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/host/shard_host_impl.h"
#include "server/shard/segment_result.h"

namespace hotbed {
namespace {

constexpr uint64_t kLogSegmentsMin = 8;  // segments that log_bytes_max holds at least
constexpr uint64_t kLogFullCheckMessages = 8;
constexpr uint32_t kPullsATimedOne = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardHost>> ShardHost::Open(const ShardHostOptions& options,
                                                           const Clock* clock) {
  auto host = std::make_unique<ShardHostImpl>(options, clock);
  HOTBED_RETURN_IF_ERROR(host->Start());
  return host;
}

uint32_t ShardHost::DimOf(const Shard& shard) { return shard.dim(); }

ShardHostImpl::ShardHostImpl(const ShardHostOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      files_(options.files == nullptr ? FileSystem::Real() : options.files),
      budget_(CarveHostBytes(options.host_bytes)),
      staged_bytes_max_(options.staged_bytes_max != 0 ? options.staged_bytes_max
                                                      : budget_.staged_bytes),
      pull_latency_(clock) {
  replica_budget_.tail_bytes_max =
      options_.replica_tail_bytes != 0 ? options_.replica_tail_bytes : budget_.replica_tail_bytes;
  Publish(ShardMap());
}

std::string ShardHostImpl::PathOf(const char* name) const {
  return absl::StrCat(options_.data_dir, "/", name);
}

// --- opening

absl::Status ShardHostImpl::Start() {
  HOTBED_RETURN_IF_ERROR(OpenFiles());
  HOTBED_RETURN_IF_ERROR(OpenTiers());
  HOTBED_RETURN_IF_ERROR(OpenLog());
  pool_ = std::make_unique<ThreadPool>("shard-pool", std::max(1, options_.pool_threads));
  HOTBED_RETURN_IF_ERROR(RecoverShards());
  HOTBED_RETURN_IF_ERROR(SaveBootId());
  CopySender::Wiring copies;
  copies.find = [this](ShardId shard) { return Find(shard); };
  copies.send = [this](ReplicaMessage message) { Send(std::move(message)); };
  copies.queued_bytes = [this](const Member& to) -> uint64_t {
    ReplicaNetwork* const network = network_.load(std::memory_order_acquire);
    return network == nullptr ? 0 : network->QueuedBytes(to);
  };
  copies.pace = &pace_;
  copies.clock = clock_;
  sender_ = std::make_unique<CopySender>(std::move(copies));
  receiver_ = std::make_unique<CopyReceiver>(static_cast<CopyReceiver::Site*>(this), clock_);
  upkeep_ = std::thread([this] { UpkeepLoop(); });
  ticker_ = std::thread([this] { TickLoop(); });
  return absl::OkStatus();
}

absl::Status ShardHostImpl::OpenFiles() {
  HOTBED_RETURN_IF_ERROR(files_->MakeDir(options_.data_dir));
  HOTBED_ASSIGN_OR_RETURN(lock_, files_->Lock(PathOf("LOCK")));
  absl::StatusOr<IdentityFile> loaded = IdentityFile::Load(PathOf("IDENTITY"), files_);
  if (!loaded.ok() && !absl::IsNotFound(loaded.status())) return loaded.status();
  const bool is_new = !loaded.ok();
  IdentityFile identity = is_new ? IdentityFile() : *std::move(loaded);
  const std::string boot_id = BootId(files_);
  was_clean_ = is_new || identity.clean_shutdown;
  rebooted_ = !is_new && (boot_id.empty() || identity.boot_id != boot_id);
  // From here on a kill leaves an unclean directory.
  identity.clean_shutdown = false;
  if (is_new) identity.boot_id = boot_id;
  HOTBED_RETURN_IF_ERROR(identity.Save(PathOf("IDENTITY"), files_));
  {
    absl::MutexLock lock(&identity_mu_);
    identity_ = std::move(identity);
  }
  HOTBED_ASSIGN_OR_RETURN(promises_, PromiseFile::Open(PathOf("PROMISES"), files_));
  HOTBED_ASSIGN_OR_RETURN(Catalog catalog, Catalog::Load(PathOf("CATALOG"), files_));
  absl::MutexLock lock(&control_mu_);
  catalog_ = std::move(catalog);
  tables_ = catalog_.tables;
  return absl::OkStatus();
}

// Only once the log is recovered: a kill before that must not make the next start take what a power
// loss tore for damage.
absl::Status ShardHostImpl::SaveBootId() {
  absl::MutexLock lock(&identity_mu_);
  IdentityFile changed = identity_;
  changed.boot_id = BootId(files_);
  if (changed.boot_id == identity_.boot_id) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(changed.Save(PathOf("IDENTITY"), files_));
  identity_ = std::move(changed);
  return absl::OkStatus();
}

absl::Status ShardHostImpl::OpenTiers() {
  TierOptions options;
  options.open_device = options_.open_device;
  options.spill_dir = PathOf("spill");
  options.hot_bytes = options_.hot_bytes != 0 ? options_.hot_bytes : budget_.hot_bytes;
  options.block_cache_bytes = budget_.block_cache_bytes;
  options.memtable_bytes = budget_.memtable_bytes;
  options.spill_bytes_max = options_.spill_bytes_max;
  if (options_.copy_file_bytes_min != 0) {
    options.copy_file_bytes_min = options_.copy_file_bytes_min;
  }
  options.io_threads = std::max(1, options_.pool_threads);
  HOTBED_ASSIGN_OR_RETURN(tiers_, TierHost::Open(options));
  if (was_clean_) return absl::OkStatus();
  // Class checkpoint has no log: what its rows were when the process died is not known to be whole
  // (DECISIONS L8).
  absl::MutexLock lock(&control_mu_);
  for (const auto& [id, table] : catalog_.tables) {
    if (table.durability != Durability::kCheckpoint) continue;
    HOTBED_LOG(Warning) << "table " << table.name << " (class checkpoint): the last run did not "
                        << "shut down, going back to the last checkpoint";
    HOTBED_RETURN_IF_ERROR(tiers_->RestoreTable(id));
  }
  return absl::OkStatus();
}

absl::Status ShardHostImpl::OpenLog() {
  ShardLogOptions options;
  options.dir = PathOf("log");
  options.segment_bytes =
      std::min(options_.log_segment_bytes,
               std::max<uint64_t>(options_.log_bytes_max / kLogSegmentsMin, 64 << 10));
  options.sync_interval_ms = options_.log_sync_interval_ms;
  options.queue_bytes_max = budget_.message_bytes;
  options.rebooted = rebooted_;
  HOTBED_ASSIGN_OR_RETURN(log_, ShardLog::Open(options, files_, clock_));
  const ShardLog::Usage usage = log_->GetUsage();
  if (!usage.torn_message.empty()) {
    HOTBED_LOG(Warning) << "log: " << usage.torn_bytes << " bytes cut: " << usage.torn_message;
  }
  return absl::OkStatus();
}

std::shared_ptr<Shard> ShardHostImpl::MakeShard(const TableSpec& table, ShardId id,
                                                const ShardRange& range, bool installed) {
  Shard::Options options;
  options.table = table;
  options.id = id;
  options.range = range;
  options.tiers = tiers_.get();
  options.log = table.durability == Durability::kCheckpoint ? nullptr : log_.get();
  options.pool = pool_.get();
  options.clock = clock_;
  options.ids_max = options_.pull_ids_max;
  options.core.sessions_max = options_.sessions_max;
  options.core.session_idle_ns_min = options_.session_idle_ms * 1'000'000;
  // A copy that was away for a moment goes on from what the others still have in memory.
  options.core.keep_tail = table.durability == Durability::kReplicated;
  options.outlet = this;
  options.replica_budget = &replica_budget_;
  options.installed = installed;
  options.staged_bytes = staged_bytes_;
  options.staged_bytes_max = staged_bytes_max_;
  options.log_full = options.log == nullptr ? nullptr : &log_full_;
  // Appends that queued requests began are committed when the queue is through, off the strand.
  options.strand.after_drain = [](void* log) { static_cast<ShardLog*>(log)->Commit(); };
  options.strand.after_drain_context = log_.get();
  return std::make_shared<Shard>(std::move(options), promises_->Get(id));
}

// --- the map

const ShardHostImpl::ShardMap& ShardHostImpl::Map() const {
  struct Cached {
    uint64_t version = 0;
    std::shared_ptr<const ShardMap> map;
  };
  thread_local Cached cached;
  if (cached.version != map_version_.load(std::memory_order_acquire)) {
    absl::MutexLock lock(&map_mu_);
    cached.map = map_;
    cached.version = map_version_.load(std::memory_order_relaxed);
  }
  return *cached.map;
}

std::shared_ptr<const ShardHostImpl::ShardMap> ShardHostImpl::HeldMap() const {
  absl::MutexLock lock(&map_mu_);
  return map_;
}

void ShardHostImpl::Publish(ShardMap map) {
  static std::atomic<uint64_t> versions{0};
  auto shared = std::make_shared<const ShardMap>(std::move(map));
  absl::MutexLock lock(&map_mu_);
  map_.swap(shared);
  map_version_.store(versions.fetch_add(1) + 1, std::memory_order_release);
}

std::shared_ptr<Shard> ShardHostImpl::Find(ShardId shard) const {
  const ShardMap& map = Map();
  const auto it = map.find(shard);
  return it == map.end() ? nullptr : it->second.shard;
}

std::optional<ShardRecord> ShardHostImpl::RecordOf(ShardId shard) const {
  const ShardMap& map = Map();
  const auto it = map.find(shard);
  if (it == map.end() || it->second.record.epoch == 0) return std::nullopt;
  return it->second.record;
}

// --- data plane

template <typename Segment>
void ShardHostImpl::RefuseUnknown(Segment* segment) const {
  const std::optional<ShardRecord> record = RecordOf(segment->shard_id);
  if (!record.has_value()) {
    RefuseSegment(segment, SegmentCode::kUnknownShard,
                  absl::StrCat(segment->shard_id.ToString(),
                               " is not held here; its table was dropped, or the map is stale"));
    return;
  }
  segment->result.epoch = record->epoch;
  RefuseSegment(segment, SegmentCode::kWrongEpoch,
                absl::StrCat(segment->shard_id.ToString(), ": epoch ", segment->epoch,
                             " asked for, current is ", record->epoch, " on server ",
                             record->primary.server));
}

void ShardHostImpl::Pull(PullWork* work) {
  // One more than the segments: the work ends here at the earliest, on no strand.
  work->pending.store(static_cast<int32_t>(work->segments.size()) + 1, std::memory_order_relaxed);
  thread_local uint32_t pulls = 0;
  const bool timed = pulls++ % kPullsATimedOne == 0;
  work->latency = timed ? &pull_latency_ : nullptr;
  if (timed) work->begun_ns = pull_latency_.NowNs();
  for (size_t i = 0; i < work->segments.size(); ++i) {
    PullSegment& segment = work->segments[i];
    // Segments of many tables are too short for the kernels to get far enough ahead in each.
    if (i + 1 < work->segments.size() && work->segments[i + 1].shard != nullptr) {
      work->segments[i + 1].shard->FetchAhead(work->segments[i + 1]);
    }
    if (segment.shard != nullptr) {
      segment.shard->Pull(work, &segment);
    } else {
      RefuseUnknown(&segment);
      FinishSegment(work);
    }
  }
  FinishSegment(work);
}

void ShardHostImpl::Push(PushWork* work) {
  work->pending.store(static_cast<int32_t>(work->segments.size()) + 1, std::memory_order_relaxed);
  for (PushSegment& segment : work->segments) {
    if (segment.shard != nullptr) {
      segment.shard->Push(work, &segment);
    } else {
      RefuseUnknown(&segment);
      FinishSegment(work);
    }
  }
  // Everything that this message appended goes out in one write.
  log_->Commit();
  // The upkeep may be in a long sweep just when the limit is reached.
  thread_local uint64_t messages = 0;
  if (messages++ % kLogFullCheckMessages == 0) NoteLogFull();
  FinishSegment(work);
}

// --- status

std::vector<std::shared_ptr<Shard>> ShardHostImpl::Shards() const {
  std::vector<std::shared_ptr<Shard>> shards;
  for (const auto& [id, entry] : Map()) {
    if (entry.shard != nullptr) shards.push_back(entry.shard);
  }
  std::sort(shards.begin(), shards.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  return shards;
}

HostStatus ShardHostImpl::Status() const {
  HostStatus status;
  status.host_bytes_limit = options_.host_bytes;
  const TierHost::Usage tiers = tiers_->GetUsage();
  status.hot_bytes_limit = tiers.hot_bytes_limit;
  status.hot_bytes = tiers.hot_bytes;
  status.device = tiers.device;
  status.device_bytes_limit = tiers.device_bytes_limit;
  status.device_bytes = tiers.device_bytes;
  status.device_pinned_bytes = tiers.device_pinned_bytes;
  status.device_rows_direct_bytes = tiers.device_rows_direct_bytes;
  status.device_rows_copied_bytes = tiers.device_rows_copied_bytes;
  status.device_error = tiers.device_error;
  status.block_cache_bytes = tiers.block_cache_bytes;
  status.memtable_bytes = tiers.memtable_bytes;
  status.spill_bytes = tiers.spill_bytes;
  const ShardLog::Usage log = log_->GetUsage();
  status.staged_bytes = static_cast<uint64_t>(staged_bytes_->load(std::memory_order_relaxed));
  status.staged_bytes_limit = staged_bytes_max_;
  status.log_bytes = log.bytes;
  status.log_refused_bytes = log.bytes_aside;
  status.spill_renewals = spill_renewals_.load(std::memory_order_relaxed);
  status.checkpoints = checkpoints_.load(std::memory_order_relaxed);
  status.log_appends = log.appends;
  status.log_writes = log.writes;
  status.log_syncs = log.syncs;
  status.read_only = log.read_only || !tiers.background_error.empty();
  status.read_only_reason = log.read_only ? log.error : tiers.background_error;
  if (tiers.damaged) {
    absl::MutexLock lock(&trouble_mu_);
    if (!tier_trouble_.empty()) absl::StrAppend(&status.read_only_reason, "; ", tier_trouble_);
  }
  if (const absl::StatusOr<uint64_t> free = files_->FreeBytes(options_.data_dir); free.ok()) {
    const uint64_t left =
        options_.spill_bytes_max == 0
            ? *free
            : options_.spill_bytes_max - std::min(options_.spill_bytes_max, tiers.spill_bytes);
    status.free_bytes = std::min(*free, left);
  }
  status.replica_tail_bytes =
      static_cast<uint64_t>(replica_budget_.tail_bytes.load(std::memory_order_relaxed));
  status.replica_tail_bytes_limit = replica_budget_.tail_bytes_max;
  status.records_sent = replica_budget_.records_sent.load(std::memory_order_relaxed);
  status.records_taken = replica_budget_.records_taken.load(std::memory_order_relaxed);
  status.replica_messages_refused =
      replica_budget_.messages_refused.load(std::memory_order_relaxed);
  status.copies_differ = replica_budget_.replicas_diverged.load(std::memory_order_relaxed);
  status.copies_sent = sender_->sent_total();
  status.copies_failed = sender_->failed_total();
  status.copied_bytes_sent = pace_.bytes_total();
  status.copies_received = receiver_->installed_total();
  status.copied_bytes_received = receiver_->bytes_total();
  status.copy_rate_now = pace_.rate();
  status.pull_p99_ns = pull_p99_ns_.load(std::memory_order_relaxed);
  for (const auto& shard : Shards()) status.shards.push_back(shard->Status());
  return status;
}

bool ShardHostImpl::Ready() const {
  if (!DeviceError().empty()) return false;
  const Member self = Self();
  for (const auto& [id, entry] : Map()) {
    if (entry.shard == nullptr || !(entry.record.primary == self)) continue;
    if (!entry.shard->active() && entry.shard->error().empty()) return false;
  }
  return true;
}

}  // namespace hotbed
