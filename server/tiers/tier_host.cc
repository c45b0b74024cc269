#include "server/tiers/tier_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "server/tiers/device/device_shard.h"

namespace hotbed {
namespace {

constexpr uint64_t kWriteBackBytesMin = 1ull << 20;
constexpr uint64_t kWriteBackBytesMax = 64ull << 20;

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
    host->own_io_ = std::make_unique<ThreadedIoQueue>(options.io_threads);
    io = host->own_io_.get();
  }
  host->io_ = io;
  return host;
}

TierHostImpl::TierHostImpl(const TierOptions& options, uint64_t slab_bytes,
                           uint64_t write_back_bytes)
    : options_(options), arena_(slab_bytes) {
  write_back_.bytes_max = write_back_bytes;
}

TierHostImpl::~TierHostImpl() {
  absl::MutexLock lock(&mu_);
  HOTBED_CHECK(shards_.empty()) << shards_.size() << " shards are still open";
}

absl::StatusOr<std::unique_ptr<TieredStore>> TierHostImpl::OpenShard(ShardParams params) {
  HOTBED_CHECK(params.executor != nullptr);
  const SpillShard spill_shard(params.table, params.range, params.shard);
  TieredShard::Params wiring;
  HOTBED_ASSIGN_OR_RETURN(wiring.has_spilled_rows, spill_->HasRows(spill_shard));
  HOTBED_ASSIGN_OR_RETURN(wiring.meta, spill_->ReadMeta(spill_shard));
  HOTBED_ASSIGN_OR_RETURN(wiring.highest_lsn, spill_->HighestLsn(spill_shard));
  wiring.shard = std::move(params);
  wiring.spill = spill_.get();
  wiring.io = io_;
  wiring.arena = &arena_;
  wiring.write_back_budget = &write_back_;
  wiring.huge_pages = options_.use_huge_pages;
  wiring.ask_for_memory = [this] {
    absl::MutexLock lock(&mu_);
    DivideBudget(nullptr);
  };
  wiring.before_close = [this](TieredShard* shard) { Forget(shard); };
  const ShardParams opened = wiring.shard;
  auto shard = std::make_unique<TieredShard>(std::move(wiring));
  {
    absl::MutexLock lock(&mu_);
    shards_.push_back(shard.get());
    DivideBudget(shard.get());
  }
  if (device_ == nullptr) return shard;
  return std::make_unique<DeviceShard>(device_.get(), std::move(shard), opened);
}

void TierHostImpl::Forget(TieredShard* shard) {
  absl::MutexLock lock(&mu_);
  shards_.erase(std::remove(shards_.begin(), shards_.end(), shard), shards_.end());
  DivideBudget(nullptr);
}

// Each shard gets a share in proportion to the bytes of all its rows. If all rows of all shards
// fit, that is at least what the shard needs.
void TierHostImpl::DivideBudget(TieredShard* opened) {
  double whole = 0;
  for (const TieredShard* shard : shards_) whole += static_cast<double>(shard->whole_bytes());
  const double budget = static_cast<double>(arena_.budget());
  for (TieredShard* shard : shards_) {
    const double share = static_cast<double>(shard->whole_bytes()) / whole;
    const uint64_t quota = static_cast<uint64_t>(budget * share);
    shard->SetDeviceShare(share);
    if (shard == opened) {
      shard->StartWithQuota(quota);
    } else {
      shard->SetQuota(quota);
    }
  }
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
  numbers->Add("block_cache_bytes", "", "", kv.block_cache_bytes);
  numbers->Add("memtable_bytes", "", "", kv.memtable_bytes);
  numbers->Add("spill_bytes", "hotbed_server_spill_bytes", "Disk taken by spilled rows.",
               kv.disk_bytes);
}

absl::Status TierHostImpl::Renew() {
  absl::MutexLock lock(&mu_);
  if (!shards_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the spill tier cannot be emptied: ", shards_.size(),
                     " shards are open; close them first"));
  }
  return spill_->Renew();
}

}  // namespace hotbed
