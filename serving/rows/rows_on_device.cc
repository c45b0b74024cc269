#include "serving/rows/rows_on_device.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/log.h"
#include "row_math/position.h"
#include "server/tiers/device/device_tier.h"

namespace hotbed {
namespace {

// So many missed rows are remembered between two looks of the writer.
constexpr size_t kMissedMax = 4096;
constexpr uint64_t kCallsToTableMax = 1024;
// Rows of a word each are copied 16 bytes at a time if they are a multiple of that.
constexpr uint32_t kWord = 4;
constexpr uint32_t kWordsTogether = 4;

// A planted bug, which tests/serving compiles in and must find.
#ifdef HOTBED_PLANTED_UNWATCHED_CHANGES
constexpr bool kWatchesChanges = false;
#else
constexpr bool kWatchesChanges = true;
#endif

std::optional<WeightType> WeightTypeOf(RowFormatKind kind) {
  if (kind == RowFormatKind::kFp32) return WeightType::kFp32;
  if (kind == RowFormatKind::kFp16) return WeightType::kFp16;
  if (kind == RowFormatKind::kBf16) return WeightType::kBf16;
  return std::nullopt;
}

// A row of codes is as many words, which nobody computes with.
device::RowShape ShapeOf(const RowCoder& coder) {
  device::RowShape shape;
  shape.hashed = true;
  shape.optimizer.kind = OptimizerKind::kSgd;
  const std::optional<WeightType> type = WeightTypeOf(coder.kind());
  shape.weight_type = type.value_or(WeightType::kFp32);
  const uint32_t words = (coder.row_bytes() + kWord - 1) / kWord;
  shape.dim = type.has_value() ? coder.dim()
                               : (words + kWordsTogether - 1) / kWordsTogether * kWordsTogether;
  return shape;
}

}  // namespace

ServedDevice::ServedDevice(std::unique_ptr<DeviceTier> tier) : tier_(std::move(tier)) {}

ServedDevice::~ServedDevice() = default;

RowsOnDevice::RowsOnDevice(std::shared_ptr<ServedDevice> device, const RowCoder& coder)
    : device_(std::move(device)),
      dim_(coder.dim()),
      row_bytes_(coder.row_bytes()),
      pools_(WeightTypeOf(coder.kind()).has_value()),
      shape_(ShapeOf(coder)),
      type_(device::RowTypeOf(shape_.weight_type)) {
  device_->without_.fetch_add(1);
}

RowsOnDevice::~RowsOnDevice() {
  const uint32_t table = table_.load();
  if (table == kNoTable) {
    device_->without_.fetch_sub(1);
    return;
  }
  auto job = std::make_shared<DeviceJob>();
  job->call = [table](device::DeviceRows* rows) {
    rows->RemoveTable(table);
    return device::Status();
  };
  device_->tier()->Submit(std::move(job));
}

std::shared_ptr<DeviceJob> RowsOnDevice::NewJob(absl::Span<const uint64_t> ids) const {
  auto job = std::make_shared<DeviceJob>();
  job->table = table_.load();
  job->dim = shape_.dim;
  job->type = type_;
  job->ids = ids.data();
  job->count = static_cast<uint32_t>(ids.size());
  return job;
}

bool RowsOnDevice::Run(std::shared_ptr<DeviceJob> job) const {
  absl::Notification ended;
  job->executor = &inline_;
  job->done = [&ended] { ended.Notify(); };
  device_->tier()->Submit(job);
  ended.WaitForNotification();
  if (job->status.ok()) return true;
  // The tier tells of a device that fails.
  if (!given_up_.exchange(true) && !device_->tier()->failed()) {
    HOTBED_LOG(Error) << "a copy's rows are read from memory and disk from now on: " << job->status;
  }
  return false;
}

std::optional<std::vector<uint32_t>> RowsOnDevice::Probe(absl::Span<const uint64_t> ids,
                                                         bool here) const {
  std::vector<uint32_t> found;
  if (ids.empty()) return found;
  const std::shared_ptr<DeviceJob> job = NewJob(ids);
  job->kind = DeviceJob::Kind::kProbe;
  if (!Run(job)) return std::nullopt;
  if (!here) return std::move(job->missing);
  auto missing = job->missing.begin();
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const bool is_missing = missing != job->missing.end() && *missing == i;
    if (is_missing) {
      ++missing;
    } else {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<uint8_t> RowsOnDevice::Padded(const uint8_t* rows,
                                          const std::vector<uint32_t>& which) const {
  const uint32_t stored = shape_.stored_bytes();
  std::vector<uint8_t> padded(which.size() * stored);
  for (size_t k = 0; k < which.size(); ++k) {
    std::copy_n(rows + uint64_t{which[k]} * row_bytes_, row_bytes_, padded.data() + k * stored);
  }
  return padded;
}

// --- the writer

void RowsOnDevice::BeginChanges(absl::Span<const uint64_t> ids, const uint8_t* rows,
                                absl::Span<const uint64_t> deleted) {
  if (!usable()) return;
  const auto changed = Probe(ids, /*here=*/true);
  const auto gone = Probe(deleted, /*here=*/true);
  if (!changed.has_value() || !gone.has_value() || (changed->empty() && gone->empty())) return;
  changes_.fetch_add(1);
  if (!changed->empty()) Assign(ids, rows, *changed);
  if (!gone->empty()) Remove(deleted, *gone);
}

absl::Status RowsOnDevice::Change(absl::Span<const uint64_t> ids, const uint8_t* rows,
                                  absl::Span<const uint64_t> deleted,
                                  absl::FunctionRef<absl::Status()> in_memory) {
  BeginChanges(ids, rows, deleted);
  absl::Status put = in_memory();
  if (!put.ok()) {
    GiveUp();
  } else if (!given_up_.load() && changes_.load(std::memory_order_relaxed) % 2 == 1) {
    changes_.fetch_add(1);
  }
  return put;
}

void RowsOnDevice::Assign(absl::Span<const uint64_t> ids, const uint8_t* rows,
                          const std::vector<uint32_t>& which) {
  const std::vector<uint8_t> padded = Padded(rows, which);
  std::vector<uint64_t> here;
  std::vector<const uint8_t*> weights;
  for (const uint32_t i : which) {
    weights.push_back(padded.data() + here.size() * shape_.stored_bytes());
    here.push_back(ids[i]);
  }
  const std::shared_ptr<DeviceJob> job = NewJob(here);
  job->kind = DeviceJob::Kind::kUpdate;
  job->gradients = weights.data();
  job->assign = true;
  Run(job);
}

void RowsOnDevice::Remove(absl::Span<const uint64_t> ids, const std::vector<uint32_t>& which) {
  std::vector<uint64_t> positions;
  for (const uint32_t i : which) positions.push_back(Mix64(ids[i]));
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  const std::shared_ptr<DeviceJob> job = NewJob({});
  job->call = [this, &positions](device::DeviceRows* of) {
    return of->Remove(table_.load(), positions);
  };
  if (Run(job)) rows_.fetch_sub(positions.size(), std::memory_order_relaxed);
}

std::vector<uint64_t> RowsOnDevice::TakeWanted() {
  std::vector<uint64_t> missed;
  {
    absl::MutexLock lock(&mu_);
    missed.swap(missed_);
  }
  if (given_up_.load()) return {};
  std::sort(missed.begin(), missed.end());
  missed.erase(std::unique(missed.begin(), missed.end()), missed.end());
  if (!usable()) return missed;
  // Bags that miss one row note all of theirs.
  const auto absent = Probe(missed, /*here=*/false);
  if (!absent.has_value()) return {};
  for (size_t k = 0; k < absent->size(); ++k) missed[k] = missed[(*absent)[k]];
  missed.resize(absent->size());
  if (!full_) return missed;
  // Rows that were missed twice before long, and few of them: see heat_filter.h.
  std::vector<uint64_t> waiting = wanted_;
  std::sort(waiting.begin(), waiting.end());
  for (const uint64_t id : missed) {
    if (std::binary_search(waiting.begin(), waiting.end(), id)) continue;
    if (heat_.Miss(Mix64(id)) >= HeatFilter::kMissesToComeUp && wanted_.size() < kMissedMax) {
      wanted_.push_back(id);
    }
  }
  const uint64_t count = std::min<uint64_t>(wanted_.size(), heat_.rows_due());
  if (count < HeatFilter::RowsTogether(slots_, kMissedMax)) return {};
  heat_.CameUp(count);
  std::vector<uint64_t> up(wanted_.end() - static_cast<std::ptrdiff_t>(count), wanted_.end());
  wanted_.resize(wanted_.size() - count);
  return up;
}

bool RowsOnDevice::MakeTable(uint64_t rows_of_copy) {
  if (calls_to_table_ > 0) {
    --calls_to_table_;
    return false;
  }
  constexpr uint64_t kCountMax = device::kRowsMax / device::kBucketSlots * device::kBucketSlots;
  // A bucket is full before the others are: with half as many slots more, few rows find no room.
  uint64_t count = std::min(rows_of_copy + rows_of_copy / 2 + device::kBucketSlots, kCountMax);
  uint32_t table = kNoTable, slots = 0;
  const std::shared_ptr<DeviceJob> job = NewJob({});
  bool made = false;
  job->call = [&](device::DeviceRows* rows) {
    const uint64_t share = rows->largest_free_bytes() / std::max(device_->without_.load(), 1u);
    while (count > device::kBucketSlots &&
           device::DeviceRows::TableBytes(shape_, false, count) > share) {
      count -= std::max<uint64_t>(count / 32, 1);
      count = std::max<uint64_t>(count / device::kBucketSlots, 1) * device::kBucketSlots;
    }
    const device::Status status = rows->AddTable(shape_, false, 0, count, &table);
    made = status.ok();
    if (made) {
      slots = rows->slots(table);
      // Before the job of another copy divides what is left.
      device_->without_.fetch_sub(1);
      table_.store(table);
    }
    const bool no_room = status.code == device::Code::kNoMemory;
    return no_room ? device::Status() : status;  // others have all of it: tried again later
  };
  if (!Run(job)) return false;
  if (!made) {
    calls_to_table_ =
        std::min(uint64_t{1} << std::min<uint64_t>(++refusals_, 32), kCallsToTableMax);
    return false;
  }
  slots_ = slots;
  heat_ = HeatFilter(slots);
  return true;
}

void RowsOnDevice::BringUp(absl::Span<const uint64_t> ids, const uint8_t* rows,
                           uint64_t rows_of_copy) {
  if (ids.empty() || given_up_.load()) return;
  if (!usable() && !MakeTable(rows_of_copy)) return;
  auto missing = Probe(ids, /*here=*/false);
  if (!missing.has_value() || missing->empty()) return;
  std::sort(missing->begin(), missing->end(),
            [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  missing->erase(std::unique(missing->begin(), missing->end(),
                             [&](uint32_t a, uint32_t b) { return ids[a] == ids[b]; }),
                 missing->end());
  const std::vector<uint8_t> padded = Padded(rows, *missing);
  std::vector<device::RowToInsert> inserted;
  for (const uint32_t i : *missing) {
    inserted.push_back(
        {table_.load(), Mix64(ids[i]), padded.data() + inserted.size() * shape_.stored_bytes()});
  }
  std::vector<device::MovedRow> evicted;  // memory or disk has them
  uint64_t came = 0;
  const std::shared_ptr<DeviceJob> job = NewJob({});
  job->call = [&](device::DeviceRows* of) {
    const uint64_t before = of->counts().inserted;
    const device::Status status = of->Insert(inserted, /*dirty=*/false, &evicted);
    came = of->counts().inserted - before;
    return status;
  };
  if (!Run(job)) return;
  full_ = full_ || !evicted.empty() || came < inserted.size();
  rows_.fetch_add(came - evicted.size(), std::memory_order_relaxed);
}

// --- readers

void RowsOnDevice::NoteMissed(absl::Span<const uint64_t> ids) const {
  absl::MutexLock lock(&mu_);
  const size_t room = kMissedMax - std::min(missed_.size(), kMissedMax);
  missed_.insert(missed_.end(), ids.begin(), ids.begin() + std::min(room, ids.size()));
}

void RowsOnDevice::Read(
    absl::Span<const uint64_t> ids,
    absl::FunctionRef<void(size_t at, uint64_t id, const uint8_t* row)> visit) const {
  if (ids.empty() || !usable() || !device_->tier()->HasRoomForPull()) return;
  const uint32_t stored = shape_.stored_bytes();
  std::vector<uint8_t> rows(ids.size() * stored);
  const std::shared_ptr<DeviceJob> job = NewJob(ids);
  job->kind = DeviceJob::Kind::kPull;
  job->rows = rows.data();
  if (!Run(job)) return;
  hits_.fetch_add(ids.size() - job->missing.size(), std::memory_order_relaxed);
  auto missing = job->missing.begin();
  for (uint32_t i = 0; i < ids.size(); ++i) {
    if (missing != job->missing.end() && *missing == i) {
      ++missing;
    } else {
      visit(i, ids[i], rows.data() + uint64_t{i} * stored);
    }
  }
}

std::optional<RowsOnDevice::PooledBags> RowsOnDevice::Pool(const Bags& bags) const {
  if (bags.ids.empty() || given_up_.load()) return std::nullopt;
  if (!usable()) {
    NoteMissed(bags.ids);
    return std::nullopt;
  }
  const uint64_t before = changes_.load();
  if (kWatchesChanges && before % 2 == 1) return std::nullopt;
  const std::shared_ptr<DeviceJob> job = NewJob(bags.ids);
  job->kind = DeviceJob::Kind::kPooled;
  job->type = RowType::kFp32;
  job->pooling = bags.pooling;
  job->bag_lengths = bags.lengths.data();
  job->bags = static_cast<uint32_t>(bags.lengths.size());
  job->weights = bags.weights;
  if (!device_->tier()->FitsPooled(*job) || !device_->tier()->HasRoomForPull()) return std::nullopt;
  PooledBags pooled;
  pooled.rows.resize(bags.lengths.size() * dim_);
  job->rows = reinterpret_cast<uint8_t*>(pooled.rows.data());
  if (!Run(job)) return std::nullopt;
  if (kWatchesChanges && changes_.load() != before) return std::nullopt;
  pooled.unpooled = std::move(job->missing);
  uint64_t hits = bags.ids.size(), first = 0;
  size_t next = 0;
  for (uint32_t bag = 0; bag < bags.lengths.size(); first += bags.lengths[bag++]) {
    if (next == pooled.unpooled.size() || pooled.unpooled[next] != bag) continue;
    ++next;
    hits -= bags.lengths[bag];
    NoteMissed(bags.ids.subspan(first, bags.lengths[bag]));
  }
  hits_.fetch_add(hits, std::memory_order_relaxed);
  return pooled;
}

}  // namespace hotbed
