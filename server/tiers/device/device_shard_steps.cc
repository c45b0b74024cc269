// The background steps of DeviceShard: making its table on the device, bringing rows up, writing
// dirty rows back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "server/tiers/device/device_shard.h"

namespace hotbed {
namespace {

constexpr uint64_t kMissesToTableMax = 1ull << 24;

}  // namespace

void DeviceShard::NextStep(bool background_first) {
  if (step_ != Step::kNone) return;
  if (background_first && StartBackground()) return;
  if (std::exchange(apply_waits_, false)) {
    StartApply();
  } else if (!background_first) {
    StartBackground();
  }
}

bool DeviceShard::StartBackground() {
  if (const absl::Status lost = Lost(); !lost.ok()) {
    if (write_back_.collecting) EndWriteBack(lost);
    return false;
  }
  if (write_back_.collecting && StartCollect()) return true;
  const bool may_promote = !replaying_ && !device_->failed();
  return may_promote && !candidates_.empty() && StartPromote();
}

bool DeviceShard::StartPromote() {
  if (has_table()) return TakeAndPromote();
  if (misses_since_table_ < misses_to_table_) return false;
  MakeTable();
  return true;
}

// --- the table

// The table's share of the device is the shard's share of the server's rows, or the free memory if
// that is less.
void DeviceShard::MakeTable() {
  step_ = Step::kPromote;
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kCall);
  job->call = [this](device::DeviceRows* rows) { return AddTable(rows); };
  job->done = Guarded([this, job = job.get()] { OnTableMade(job->status); });
  device_->Submit(job);
}

device::Status DeviceShard::AddTable(device::DeviceRows* rows) const {
  device::RowShape shape;
  shape.seed = spec_.seed;
  shape.dim = dim_;
  shape.column_first = range_.column_first;
  shape.hashed = spec_.hashed;
  shape.weight_type = spec_.weight_type;
  shape.optimizer = spec_.optimizer;
  shape.initializer = spec_.initializer;
  const auto share =
      static_cast<uint64_t>(static_cast<double>(device_->slab_bytes()) * below_->device_share());
  const uint64_t range = spec_.hashed ? ~0ull : range_.limit - range_.first;
  const uint64_t bytes = std::min(share, rows->largest_free_bytes());
  bool direct = false;
  uint64_t count = device::kRowsMax / device::kBucketSlots * device::kBucketSlots;
  if (range <= count && device::DeviceRows::TableBytes(shape, true, range) <= bytes) {
    direct = true;
    count = range;
  }
  // At least one bucket.
  while (!direct && count > device::kBucketSlots &&
         device::DeviceRows::TableBytes(shape, false, count) > bytes) {
    count -= std::max<uint64_t>(count / 32, 1);
    count = std::max<uint64_t>(count / device::kBucketSlots, 1) * device::kBucketSlots;
  }
  const device::Status status =
      rows->AddTable(shape, direct, range_.first_position(spec_.hashed), count, &table_->number);
  table_->exists = status.ok();
  table_->slots = status.ok() ? rows->slots(table_->number) : 0;
  return status;
}

void DeviceShard::OnTableMade(const absl::Status& status) {
  step_ = Step::kNone;
  table_known_ = table_->exists;
  if (table_known_) {
    heat_ = HeatFilter(table_->slots);
  } else {
    // Other shards have all of the device; they may give some back later.
    misses_since_table_ = 0;
    misses_to_table_ = std::min(2 * std::max<uint64_t>(misses_to_table_, 1024), kMissesToTableMax);
    candidates_.clear();
    if (!device_->failed()) {
      HOTBED_LOG_EVERY_S(Warning, 60)
          << "a shard of table " << spec_.name << " has no rows on the device: " << status;
    }
  }
  NextStep(/*background_first=*/false);
}

// --- rows come up

bool DeviceShard::TakeAndPromote() {
  size_t count = std::min<size_t>(candidates_.size(), below_->slice_rows());
  if (full_) {
    count = std::min(count, heat_.rows_due());
    if (count < HeatFilter::RowsTogether(table_->slots, below_->slice_rows())) return false;
  }
  // As many rows may have to come down to make room.
  if (!below_->HasRoomFor(count)) return false;
  const std::vector<uint64_t> ids(candidates_.end() - static_cast<std::ptrdiff_t>(count),
                                  candidates_.end());
  candidates_.resize(candidates_.size() - count);
  moving_ = ExchangedRows();
  below_->TakeRows(ids, /*clean_only=*/write_back_.active, &moving_);
  if (moving_.size() == 0) return false;
  if (full_) heat_.CameUp(moving_.size());
  for (uint32_t k = 0; k < moving_.size(); ++k) moving_at_[moving_.positions[k]] = k;
  step_ = Step::kPromote;

  struct Result {
    std::vector<device::MovedRow> victims;
    std::vector<uint32_t> refused;
  };
  auto result = std::make_shared<Result>();
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kCall);
  job->call = [this, result](device::DeviceRows* rows) {
    device::Status status;
    for (const bool dirty : {true, false}) {
      std::vector<device::RowToInsert> inserted;
      std::vector<uint32_t> numbers, refused;
      for (uint32_t k = 0; k < moving_.size(); ++k) {
        if ((moving_.dirty[k] != 0) != dirty) continue;
        inserted.push_back({table_->number, moving_.positions[k], moving_.payload(k)});
        numbers.push_back(k);
      }
      status = rows->Insert(inserted, dirty, &result->victims, &refused);
      if (!status.ok()) break;
      for (uint32_t r : refused) result->refused.push_back(numbers[r]);
    }
    return status;
  };
  job->done = Guarded([this, result, job = job.get()] {
    OnPromoted(job->status, result->victims, result->refused);
  });
  device_->Submit(job);
  return true;
}

void DeviceShard::OnPromoted(const absl::Status& status,
                             const std::vector<device::MovedRow>& victims,
                             const std::vector<uint32_t>& refused) {
  step_ = Step::kNone;
  if (status.ok()) {
    ExchangedRows down = Exchanged(victims);
    for (uint32_t k : refused) {
      std::memcpy(down.Add(moving_.positions[k], moving_.dirty[k] != 0), moving_.payload(k),
                  moving_.payload_bytes);
    }
    below_->PutRows(down);
    full_ = full_ || down.size() > 0;
    rows_.fetch_add(static_cast<int64_t>(moving_.size()) - down.size(), std::memory_order_relaxed);
  }
  // Otherwise the device is lost, and the shard with it.
  moving_ = ExchangedRows();
  moving_at_.clear();
  NextStep(/*background_first=*/false);
}

ExchangedRows DeviceShard::Exchanged(const std::vector<device::MovedRow>& rows) const {
  ExchangedRows out;
  out.payload_bytes = below_->payload_bytes();
  for (const device::MovedRow& row : rows) {
    std::memcpy(out.Add(row.position, row.dirty), row.stored.data(), out.payload_bytes);
  }
  return out;
}

// --- dirty rows are written back

void DeviceShard::WriteBackAll(Lsn applied_lsn, std::string meta, Done done) {
  HOTBED_CHECK(!write_back_.active) << "one WriteBackAll at a time";
  if (const absl::Status lost = Lost(); !lost.ok()) return Fail(std::move(done), lost);
  write_back_.active = true;
  write_back_.collecting = true;
  write_back_.slot = 0;
  write_back_.lsn = applied_lsn;
  write_back_.meta = std::move(meta);
  write_back_.done = std::move(done);
  below_->SetAppliedLsn(applied_lsn);
  executor_->Run(Guarded([this] { NextStep(/*background_first=*/false); }));
}

// False: the device has no more rows to collect, or WriteBack has no room now and the end of a
// write calls NextStep again.
bool DeviceShard::StartCollect() {
  if (!has_table() || write_back_.slot >= table_->slots) {
    write_back_.collecting = false;
    below_->WriteBackAll(write_back_.lsn, std::move(write_back_.meta),
                         [this](absl::Status status) { EndWriteBack(status); });
    return false;
  }
  const uint32_t wanted = below_->slice_rows();
  if (!below_->HasRoomFor(wanted)) {
    if (const absl::Status error = below_->WriteError(); !error.ok()) EndWriteBack(error);
    return false;
  }
  step_ = Step::kCollect;
  struct Result {
    uint32_t slot;
    std::vector<device::MovedRow> rows;
  };
  auto result = std::make_shared<Result>();
  result->slot = write_back_.slot;
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kCall);
  job->call = [table = table_->number, wanted, result](device::DeviceRows* rows) {
    return rows->Collect(table, &result->slot, wanted, &result->rows);
  };
  job->done = Guarded(
      [this, result, job = job.get()] { OnCollected(job->status, result->rows, result->slot); });
  device_->Submit(job);
  return true;
}

void DeviceShard::OnCollected(const absl::Status& status, const std::vector<device::MovedRow>& rows,
                              uint32_t slot) {
  step_ = Step::kNone;
  if (!status.ok()) {
    EndWriteBack(status);
  } else {
    below_->WriteRows(Exchanged(rows));
    write_back_.slot = slot;
  }
  // A waiting update goes first; its end calls NextStep again.
  if (std::exchange(apply_waits_, false)) return StartApply();
  NextStep(/*background_first=*/false);
}

void DeviceShard::EndWriteBack(const absl::Status& status) {
  write_back_.active = false;
  write_back_.collecting = false;
  Done done = std::move(write_back_.done);
  write_back_.done = nullptr;
  done(status);
}

}  // namespace hotbed
