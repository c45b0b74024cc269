#include "server/tiers/tier_host.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "server/tiers/device/device_shard.h"

namespace hotbed {
namespace {

constexpr uint64_t kWriteBackBytesMin = 1ull << 20;
constexpr uint64_t kWriteBackBytesMax = 64ull << 20;

// A round ends after twice as many visits as there are rows in memory: rows with less than half of
// the average look cold, however busy the server is, and of rows with the average few do. Looking
// at all rows costs about 0.1 ns for each row. An almost idle server does not wait for so many.
constexpr uint64_t kVisitsPerRow = 2;
constexpr int64_t kRoundNsMin = 60 * kMillisecondNs;
constexpr int64_t kRoundNsMax = 4 * kSecondNs;
// A round takes a microsecond or two for each shard.
constexpr int64_t kRoundNsPerShard = 50'000;
// With less than this part of the budget unused, shards in use come before rows that arrive.
constexpr uint64_t kTightShare = 16;
// Counts from before a longer time than this without demand say nothing about the present.
constexpr int64_t kStaleNs = 4 * kRoundNsMax;

// Hands the rows that have come on when all are written.
class ReceivingWriter : public ShardRowWriter {
 public:
  using Finished = std::function<void(std::unique_ptr<ArrivingRows>)>;

  ReceivingWriter(std::unique_ptr<ArrivingRows> rows, Finished finished)
      : rows_(std::move(rows)), finished_(std::move(finished)) {}
  ArrivingRows* rows() { return rows_.get(); }
  void set_writer(std::unique_ptr<ShardRowWriter> writer) { writer_ = std::move(writer); }

  absl::Status Write(absl::string_view block) override { return writer_->Write(block); }
  absl::Status WriteValues(absl::Span<const uint64_t>, const uint8_t*, Lsn) override {
    return absl::UnimplementedError("rows that are received come in blocks");
  }
  absl::Status Finish(absl::string_view meta) override {
    HOTBED_RETURN_IF_ERROR(writer_->Finish(meta));
    finished_(std::move(rows_));
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<ArrivingRows> rows_;
  const Finished finished_;
  std::unique_ptr<ShardRowWriter> writer_;  // places into rows_
};

}  // namespace

absl::StatusOr<std::unique_ptr<TierHost>> TierHost::Open(const TierOptions& options) {
  if (options.io_threads < 1 || options.io_threads > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("TierOptions.io_threads is ", options.io_threads, "; use 1 to 256"));
  }
  return TierHostImpl::Open(options, /*io=*/nullptr);
}

absl::StatusOr<std::unique_ptr<TierHostImpl>> TierHostImpl::Open(const TierOptions& options,
                                                                 IoQueue* io) {
  std::unique_ptr<DeviceTier> device;
  if (options.open_device) {
    HOTBED_ASSIGN_OR_RETURN(device, options.open_device());
    if (device != nullptr && io != nullptr) device->RunOn(io);
  }
  // The hot budget also pays for the host memory of the device, and, with a thirty-second, for rows
  // on their way to the spill tier.
  uint64_t hot_bytes = options.hot_bytes;
  if (device != nullptr && hot_bytes > 2 * device->host_bytes()) hot_bytes -= device->host_bytes();
  const uint64_t write_back_bytes =
      std::clamp(hot_bytes / 32, kWriteBackBytesMin, kWriteBackBytesMax);
  const uint64_t slab_bytes =
      hot_bytes > 2 * write_back_bytes ? hot_bytes - write_back_bytes : hot_bytes;
  auto host =
      std::unique_ptr<TierHostImpl>(new TierHostImpl(options, slab_bytes, write_back_bytes));
  host->device_ = std::move(device);
  KvOptions kv;
  kv.wal = false;
  kv.cache_values = false;  // the hot tier is the cache
  kv.block_cache_bytes = options.block_cache_bytes;
  kv.memtable_bytes = options.memtable_bytes;
  kv.bytes_max = options.spill_bytes_max;
  kv.must_exist = options.must_exist;
  HOTBED_ASSIGN_OR_RETURN(host->spill_,
                          SpillTier::Open(options.spill_dir, kv, options.marks, options.run));
  if (io == nullptr) {
    host->own_io_ = std::make_unique<SplitIoQueue>(options.io_threads);
    io = host->own_io_.get();
  }
  host->io_ = io;
  return host;
}

TierHostImpl::TierHostImpl(const TierOptions& options, uint64_t slab_bytes,
                           uint64_t write_back_bytes)
    : options_(options),
      clock_(options.clock == nullptr ? Clock::Real() : options.clock),
      arena_(slab_bytes) {
  write_back_.bytes_max = write_back_bytes;
}

TierHostImpl::~TierHostImpl() {
  absl::MutexLock lock(&mu_);
  HOTBED_CHECK(shards_.empty() && unopened_ == 0)
      << shards_.size() + unopened_ << " shards are still open";
}

// The device has rows that memory has not, and takes rows of memory; it gets them when they are
// asked for.
absl::StatusOr<std::unique_ptr<ShardRowWriter>> TierHostImpl::ReceiveShard(
    const SharedValue<TableSpec>& table, const ShardRange& range, ShardId shard, Lsn log_from) {
  const SpillShard spill_shard(table, range, shard);
  if (device_ != nullptr) return WriteShard(spill_shard);
  ArrivingRows::Memory memory{&arena_, nullptr, options_.use_huge_pages, &memory_wanted_};
  {
    absl::MutexLock lock(&mu_);
    memory.table = MemoryOf(table->id);
  }
  memory_wanted_.store(false, std::memory_order_relaxed);
  auto writer = std::make_unique<ReceivingWriter>(
      std::make_unique<ArrivingRows>(table, range, log_from, memory),
      [this, shard](std::unique_ptr<ArrivingRows> rows) {
        absl::MutexLock lock(&mu_);
        arrived_[shard] = std::move(rows);
      });
  HOTBED_ASSIGN_OR_RETURN(
      auto to_disk,
      spill_->NewWriter(spill_shard, options_.snapshot_file_bytes_min,
                        [rows = writer->rows()](const RowBlock& block) { rows->Place(block); }));
  writer->set_writer(std::move(to_disk));
  return writer;
}

// Rows of another range, or none, are of no use. They leave without the lock: that may take long.
std::unique_ptr<ArrivingRows> TierHostImpl::TakeArrived(ShardId shard, const ShardRange& range) {
  std::unique_ptr<ArrivingRows> rows;
  {
    absl::MutexLock lock(&mu_);
    const auto it = arrived_.find(shard);
    if (it == arrived_.end()) return nullptr;
    rows = std::move(it->second);
    arrived_.erase(it);
  }
  const ShardRange& of = rows->range();
  const bool same = of.first == range.first && of.limit == range.limit &&
                    of.column_first == range.column_first && of.column_limit == range.column_limit;
  return same && rows->hot()->table()->rows > 0 ? std::move(rows) : nullptr;
}

absl::Status TierHostImpl::DeleteShard(const SpillShard& shard) {
  (void)TakeArrived(shard.shard, ShardRange());
  return spill_->Delete(shard);
}

absl::StatusOr<std::unique_ptr<TieredStore>> TierHostImpl::OpenShard(ShardParams params) {
  HOTBED_CHECK(params.executor != nullptr);
  std::unique_ptr<ArrivingRows> arrived = TakeArrived(params.shard, params.range);
  const MemoryShare share = MemoryShareOf(params.table);
  SetMemoryShare(params.table->id, share.min, share.max);
  const SpillShard spill_shard(params.table, params.range, params.shard);
  HOTBED_ASSIGN_OR_RETURN(const bool has_spilled_rows, spill_->HasRows(spill_shard));
  UnopenedStore::Found found;
  HOTBED_ASSIGN_OR_RETURN(found.meta, spill_->ReadMeta(spill_shard));
  HOTBED_ASSIGN_OR_RETURN(found.highest_lsn, spill_->HighestLsn(spill_shard));
  arena_.Reserve(static_cast<int64_t>(options_.shard_bytes));
  // The device's kernels do not know touches.
  const bool on_device = device_ != nullptr && !params.table->optimizer.touches;
  if (!has_spilled_rows && !on_device) {
    absl::MutexLock lock(&mu_);
    ++unopened_;
    return std::make_unique<UnopenedStore>(this, std::move(params), std::move(found));
  }
  const ShardParams opened = params;
  auto shard = MakeShard(std::move(params), std::move(found), has_spilled_rows, std::move(arrived));
  if (!on_device) return shard;
  return std::make_unique<DeviceShard>(device_.get(), std::move(shard), opened);
}

std::unique_ptr<TieredShard> TierHostImpl::MakeShard(ShardParams params, UnopenedStore::Found found,
                                                     bool has_spilled_rows,
                                                     std::unique_ptr<ArrivingRows> arrived) {
  TieredShard::Params wiring;
  wiring.arrived = std::move(arrived);
  wiring.has_spilled_rows = has_spilled_rows;
  wiring.meta = std::move(found.meta);
  wiring.highest_lsn = found.highest_lsn;
  wiring.shard = std::move(params);
  wiring.spill = spill_.get();
  wiring.io = io_;
  wiring.arena = &arena_;
  wiring.write_back_budget = &write_back_;
  wiring.huge_pages = options_.use_huge_pages;
  wiring.memory_refused = [this] { OnMemoryRefused(); };
  {
    absl::MutexLock lock(&mu_);
    wiring.memory_of_table = MemoryOf(wiring.shard.table->id);
  }
  wiring.before_close = [this](TieredShard* shard) { Forget(shard); };
  auto shard = std::make_unique<TieredShard>(std::move(wiring));
  absl::MutexLock lock(&mu_);
  shards_.push_back({shard.get(), 0});
  DivideDevice();
  return shard;
}

std::unique_ptr<TieredStore> TierHostImpl::OpenRows(ShardParams params,
                                                    UnopenedStore::Found found) {
  std::unique_ptr<TieredStore> store =
      MakeShard(std::move(params), std::move(found), /*has_spilled_rows=*/false, nullptr);
  absl::MutexLock lock(&mu_);
  --unopened_;
  return store;
}

void TierHostImpl::ClosedUnopened() {
  absl::MutexLock lock(&mu_);
  --unopened_;
  arena_.Reserve(-static_cast<int64_t>(options_.shard_bytes));
}

void TierHostImpl::Forget(TieredShard* shard) {
  absl::MutexLock lock(&mu_);
  shards_.erase(std::remove_if(shards_.begin(), shards_.end(),
                               [shard](const auto& entry) { return entry.shard == shard; }),
                shards_.end());
  arena_.Reserve(-static_cast<int64_t>(options_.shard_bytes));
  DivideDevice();
}

// Each shard's share of the device is in proportion to the bytes of all its rows.
void TierHostImpl::DivideDevice() {
  if (device_ == nullptr) return;
  double whole = 0;
  for (const auto& entry : shards_) whole += static_cast<double>(entry.shard->whole_bytes());
  for (const auto& [shard, visits] : shards_) {
    shard->SetDeviceShare(static_cast<double>(shard->whole_bytes()) / whole);
  }
}

// --- the division of memory

HotArena::Table* TierHostImpl::MemoryOf(TableId table) {
  std::unique_ptr<HotArena::Table>& memory = tables_[table];
  if (memory == nullptr) memory = std::make_unique<HotArena::Table>();
  return memory.get();
}

void TierHostImpl::SetMemoryShare(TableId table, float least, float most) {
  const auto bytes = [this](float share) {
    return static_cast<uint64_t>(static_cast<double>(share) * static_cast<double>(arena_.budget()));
  };
  absl::MutexLock lock(&mu_);
  HotArena::Table* const memory = MemoryOf(table);
  memory->least.store(bytes(least), std::memory_order_relaxed);
  memory->most.store(bytes(most), std::memory_order_relaxed);
  if (memory->taken.load(std::memory_order_relaxed) > bytes(most)) DivideMemoryNow(clock_->NowNs());
}

void TierHostImpl::OnMemoryRefused() {
  // With more left, the shard's table has reached its most.
  if (arena_.unused() <= arena_.budget() / kTightShare) {
    memory_wanted_.store(true, std::memory_order_relaxed);
  }
  const int64_t now_ns = clock_->NowNs();
  if (now_ns < next_look_ns_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mu_);
  if (now_ns < next_look_ns_.load(std::memory_order_relaxed)) return;
  if (RoundIsOver(now_ns)) DivideMemoryNow(now_ns);
  const int64_t pause_ns =
      std::max(kRoundNsMin, kRoundNsPerShard * static_cast<int64_t>(shards_.size()));
  next_look_ns_.store(now_ns + pause_ns, std::memory_order_relaxed);
}

bool TierHostImpl::RoundIsOver(int64_t now_ns) const {
  if (last_round_ns_ == 0 || now_ns - last_round_ns_ >= kRoundNsMax) return true;
  uint64_t rows = 0, visits = 0;
  for (const auto& [shard, visits_before] : shards_) {
    rows += shard->counters()->rows_resident.load(std::memory_order_relaxed);
    visits += shard->visits() - visits_before;
  }
  return visits >= kVisitsPerRow * rows;
}

void TierHostImpl::DivideMemoryNow(int64_t now_ns) {
  // After a time without demand, nobody knows which rows are cold: this round only begins to count.
  const bool counted = last_round_ns_ != 0 && now_ns - last_round_ns_ <= kStaleNs;
  std::vector<TableShare> shares;
  std::vector<ShardDemand> demands;
  absl::flat_hash_map<const HotArena::Table*, size_t> share_of;
  for (auto& [shard, visits_before] : shards_) {
    const HotArena::Table* const table = shard->account()->table;
    const auto [share, is_new] = share_of.try_emplace(table, shares.size());
    if (is_new) shares.push_back({table->taken.load(), table->least.load(), table->most.load()});
    RowCounters* const counters = shard->counters();
    const uint64_t visits = shard->visits();
    const uint64_t rows = counters->rows_resident.load();
    ShardDemand demand;
    demand.table = share->second;
    demand.taken = shard->account()->taken.load();
    demand.refused = counters->refused_bytes.exchange(0);
    demand.wanted = counters->wanted_bytes.exchange(0);
    demand.cold = counters->cold_bytes.load();
    demand.idle = (rows - std::min(rows, visits - visits_before)) * shard->row_bytes();
    if (!counted) demand.wanted = demand.cold = demand.idle = 0;
    demands.push_back(demand);
    visits_before = visits;
  }
  const std::vector<ShardTransfer> transfers =
      DivideMemory(arena_.budget(), arena_.taken(), shares, demands);
  for (size_t i = 0; i < shards_.size(); ++i) {
    arena_.SetCredit(shards_[i].shard->account(), transfers[i].credit);
    shards_[i].shard->NextRound(transfers[i].give_cold, transfers[i].give_forced);
  }
  last_round_ns_ = now_ns;
}

std::string TierHostImpl::DeviceError() const {
  return device_ == nullptr ? "" : std::string(device_->error().message());
}

TierHost::Health TierHostImpl::GetHealth() const {
  KvStore::Usage kv = spill_->GetUsage();
  return {std::move(kv.background_error), kv.damaged};
}

void TierHostImpl::AddNumbers(StatusNumbers* numbers) const {
  const KvStore::Usage kv = spill_->GetUsage();
  numbers->Add("hot_bytes_limit", "hotbed_server_hot_limit_bytes", "Memory limit of the hot tier.",
               options_.hot_bytes);
  numbers->Add("hot_bytes", "hotbed_server_hot_bytes", "Memory of the hot tier.",
               arena_.taken() + write_back_.bytes.load(std::memory_order_relaxed));
  {
    absl::MutexLock lock(&mu_);
    numbers->Add("shard_bytes", "hotbed_server_shard_bytes",
                 "Memory of the shards besides their rows, taken from the hot tier.",
                 options_.shard_bytes * (shards_.size() + unopened_));
  }
  numbers->Add("block_cache_bytes", "", "", kv.block_cache_bytes);
  numbers->Add("memtable_bytes", "", "", kv.memtable_bytes);
  numbers->Add("spill_bytes", "hotbed_server_spill_bytes", "Disk taken by spilled rows.",
               kv.disk_bytes);
}

absl::Status TierHostImpl::Renew() {
  absl::MutexLock lock(&mu_);
  if (!shards_.empty() || unopened_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the spill tier cannot be emptied: ", shards_.size() + unopened_,
                     " shards are open; close them first"));
  }
  arrived_.clear();
  return spill_->Renew();
}

}  // namespace hotbed
