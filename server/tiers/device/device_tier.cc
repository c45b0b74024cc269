#include "server/tiers/device/device_tier.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

// Messages large enough that launches and waits cost little, and small beside the rows; two of them
// are under way.
device::RowsOptions LimitsFor(uint64_t device_bytes, uint64_t host_bytes_max) {
  device::RowsOptions options;
  options.device_bytes = device_bytes;
  options.row_bytes_max =
      std::clamp(std::min(device_bytes / 64, host_bytes_max / 8), kMiB, 32 * kMiB);
  options.move_bytes_max = std::clamp(options.row_bytes_max / 2, kMiB, 16 * kMiB);
  options.ids_max =
      static_cast<uint32_t>(std::clamp<uint64_t>(options.row_bytes_max / 64, 1u << 14, 1u << 18));
  options.segments_max = 4096;
  return options;
}

bool IsRead(const DeviceJob& job) {
  return job.kind == DeviceJob::Kind::kPull || job.kind == DeviceJob::Kind::kPooled;
}

// Of which two may be under way.
bool IsStartable(DeviceJob::Kind kind) {
  return kind != DeviceJob::Kind::kCall && kind != DeviceJob::Kind::kPooled;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTier>> DeviceTier::Open(std::unique_ptr<device::Device> device,
                                                             uint64_t device_bytes,
                                                             uint64_t host_bytes_max) {
  if (device_bytes == 0) device_bytes = device->free_bytes() / 10 * 9;
  return Open(std::move(device), LimitsFor(device_bytes, host_bytes_max));
}

absl::StatusOr<std::unique_ptr<DeviceTier>> DeviceTier::Open(std::unique_ptr<device::Device> device,
                                                             const device::RowsOptions& options) {
  auto tier = std::unique_ptr<DeviceTier>(new DeviceTier(std::move(device), options));
  HOTBED_RETURN_IF_ERROR(tier->TakeMemory());
  return tier;
}

DeviceTier::DeviceTier(std::shared_ptr<device::Device> device, const device::RowsOptions& options)
    : device_(std::move(device)),
      pinner_(std::make_shared<DevicePinner>(device_)),
      options_(options),
      name_(device_->Describe()) {}

absl::Status DeviceTier::TakeMemory() {
  HOTBED_RETURN_IF_ERROR(StatusOf(device::DeviceRows::Open(device_.get(), options_, &rows_)));
  host_bytes_ = rows_->staging_bytes();
  const auto take = [this](uint64_t bytes, auto** array) -> absl::Status {
    uint8_t* memory = nullptr;
    HOTBED_RETURN_IF_ERROR(StatusOf(device_->AllocateStaging(bytes, &memory)));
    *array = reinterpret_cast<std::remove_reference_t<decltype(*array)>>(memory);
    host_bytes_ += bytes;
    return absl::OkStatus();
  };
  const uint64_t ids = options_.ids_max;
  for (Staging& staging : staging_) {
    HOTBED_RETURN_IF_ERROR(take(options_.row_bytes_max, &staging.rows));
    HOTBED_RETURN_IF_ERROR(take(sizeof(uint64_t) * ids, &staging.ids));
    HOTBED_RETURN_IF_ERROR(take(ids, &staging.flags));
  }
  HOTBED_RETURN_IF_ERROR(take(sizeof(uint32_t) * (ids + 1), &offset_staging_));
  HOTBED_RETURN_IF_ERROR(take(sizeof(float) * ids, &weight_staging_));
  slab_bytes_ = rows_->free_bytes();
  bytes_.store(options_.device_bytes - slab_bytes_, std::memory_order_relaxed);
  return absl::OkStatus();
}

DeviceTier::~DeviceTier() {
  own_io_ = nullptr;  // ends what is queued
  rows_ = nullptr;
  for (const Staging& staging : staging_) {
    device_->FreeStaging(staging.rows);
    device_->FreeStaging(reinterpret_cast<uint8_t*>(staging.ids));
    device_->FreeStaging(staging.flags);
  }
  device_->FreeStaging(reinterpret_cast<uint8_t*>(offset_staging_));
  device_->FreeStaging(reinterpret_cast<uint8_t*>(weight_staging_));
}

absl::Status DeviceTier::error() const {
  absl::MutexLock lock(&mu_);
  return error_;
}

absl::Status DeviceTier::StatusOf(const device::Status& status) {
  switch (status.code) {
    case device::Code::kOk:
      return absl::OkStatus();
    case device::Code::kFailed:
      break;
    case device::Code::kNoDevice:
      return absl::FailedPreconditionError(status.message);
    case device::Code::kNoMemory:
    case device::Code::kTooLarge:
      return absl::ResourceExhaustedError(status.message);
    case device::Code::kUnknown:
      return absl::InternalError(status.message);
  }
  absl::MutexLock lock(&mu_);
  if (error_.ok()) {
    error_ = DeviceLostError(
        absl::StrCat("the device failed (", status.message,
                     "): shards with rows on it are not served until this server is started "
                     "anew; what was acknowledged is in the log"));
    HOTBED_LOG(Error) << error_;
    failed_.store(true, std::memory_order_release);
  }
  return error_;
}

void DeviceTier::Submit(std::shared_ptr<DeviceJob> job) {
  HOTBED_DCHECK(job->kind == DeviceJob::Kind::kCall || job->kind == DeviceJob::Kind::kPooled ||
                job->count > 0);
  absl::MutexLock lock(&mu_);
  if (IsRead(*job)) pulls_waiting_.fetch_add(1, std::memory_order_relaxed);
  queue_.push_back(std::move(job));
  if (std::exchange(draining_, true)) return;
  if (io_ == nullptr) {
    own_io_ = std::make_unique<ThreadedIoQueue>(1);
    io_ = own_io_.get();
  }
  io_->Submit([this] { Drain(); });
}

// Nothing is under way between two tasks. Within one, a message is started before the one before it
// is ended; what cannot be started waits for that.
void DeviceTier::Drain() {
  Message before;
  for (uint32_t n = 0; n < messages_of_task_; ++n) {
    Message message = NextMessage();
    if (message.pieces.empty()) break;
    if (!IsStartable(message.kind())) End(&before);
    Start(&message);
    End(&before);
    before = std::move(message);
    if (!before.is_started) End(&before);
  }
  End(&before);
  absl::MutexLock lock(&mu_);
  draining_ = !queue_.empty();
  if (draining_) io_->Submit([this] { Drain(); });
}

// f() while the shard is there, inside of its gate: nothing of it is run, only its memory is used.
// In one gate at a time, and in none while a message is under way: what is told of another message
// may close it.
template <typename F>
void DeviceTier::Inside(Piece* piece, F f) {
  IoGate* const gate = piece->job->gate.get();
  if (gate != nullptr && !gate->Enter()) {
    piece->is_open = false;
    piece->job->status = absl::CancelledError("the shard is gone");
    return;
  }
  f();
  if (gate != nullptr) gate->Leave();
}

// Runs the message, or starts it.
void DeviceTier::Start(Message* message) {
  if (failed()) {
    message->status.code = device::Code::kFailed;
  } else if (message->kind() == DeviceJob::Kind::kCall) {
    Piece& piece = message->pieces.front();
    Inside(&piece, [&] { message->status = piece.job->call(rows_.get()); });
  } else if (message->kind() == DeviceJob::Kind::kPooled) {
    message->status = RunPooled(message);
  } else {
    message->status = StartTogether(message);
  }
}

// Waits for the message if it is under way, hands out and tells. Does nothing without pieces, and
// leaves none.
void DeviceTier::End(Message* message) {
  if (message->pieces.empty()) return;
  if (message->is_started) message->status = rows_->Finish(message->flight, &message->missing);
  for (Piece& piece : message->pieces)
    piece.held = nullptr;  // the device has copied, or never will
  const absl::Status told = StatusOf(message->status);
  for (Piece& piece : message->pieces) {
    if (!piece.is_open) continue;
    Inside(&piece, [&] {
      if (piece.job->status.ok()) piece.job->status = told;
      if (!told.ok()) return;
      if (piece.job->kind == DeviceJob::Kind::kPooled) return HandOutBags(piece, *message);
      if (piece.job->kind != DeviceJob::Kind::kCall) HandOut(piece, *message);
    });
  }
  bytes_.store(options_.device_bytes - rows_->free_bytes(), std::memory_order_relaxed);
  for (const Piece& piece : message->pieces) {
    if (!piece.is_last) continue;
    if (IsRead(*piece.job)) pulls_waiting_.fetch_sub(1, std::memory_order_relaxed);
    Finish(piece.job);
  }
  *message = Message();
}

// Told inside of one gate alone: the executor may run what closes it.
void DeviceTier::Finish(const std::shared_ptr<DeviceJob>& job) {
  if (job->executor == nullptr || absl::IsCancelled(job->status)) return;
  if (job->gate != nullptr && !job->gate->Enter()) return;
  job->executor->Run([job] { job->done(); });
  if (job->gate != nullptr) job->gate->Leave();
}

device::Status DeviceTier::StartTogether(Message* message) {
  const DeviceJob::Kind kind = message->kind();
  message->flight = next_flight_;
  const Staging& staging = staging_[message->flight];
  segments_.clear();
  uint32_t at = 0;
  for (Piece& piece : message->pieces) {
    piece.at = at;  // there are no gaps where shards have gone
    Inside(&piece, [&] {
      Pack(piece, staging);
      HoldAnswer(&piece);
    });
    if (!piece.is_open) continue;
    at += piece.count;
    const DeviceJob& job = *piece.job;
    device::Segment segment;
    segment.table = job.table;
    segment.first = piece.at;
    segment.type = job.type;
    if (kind != DeviceJob::Kind::kProbe) segment.rows_at = piece.rows_at;
    segment.assign = job.assign;
    segment.scalars = job.scalars;
    segments_.push_back(segment);
  }
  if (at == 0) return {};
  const device::Batch batch = {segments_.data(), static_cast<uint32_t>(segments_.size()),
                               staging.ids, at};
  device::Status status;
  if (kind == DeviceJob::Kind::kPull) {
    PlaceRows(&message->pieces, staging.rows);
    status = rows_->StartPull(message->flight, batch, parts_, staging.flags);
  } else if (kind == DeviceJob::Kind::kProbe) {
    status = rows_->StartProbe(message->flight, batch);
  } else {
    status = rows_->StartUpdate(message->flight, batch, staging.rows);
  }
  message->is_started = status.ok();
  if (status.ok()) next_flight_ = (next_flight_ + 1) % device::kFlights;
  return status;
}

// Shards that have gone have no part in the message.
device::Status DeviceTier::RunPooled(Message* message) {
  const Staging& staging = staging_[0];
  segments_.clear();
  bag_segments_.clear();
  const DeviceJob& first = *message->pieces.front().job;
  const bool weighted = first.weights != nullptr, places = first.arg_max != nullptr;
  uint32_t at = 0, bags = 0;
  for (Piece& piece : message->pieces) {
    piece.at = at;
    piece.bags_at = bags;
    Inside(&piece, [&] {
      PackBags(piece);
      HoldAnswer(&piece);
    });
    if (!piece.is_open) continue;
    device::Segment segment;
    segment.table = piece.job->table;
    segment.first = at;
    segments_.push_back(segment);
    segment.first = bags;
    segment.rows_at = piece.rows_at;
    segment.type = piece.job->type;
    bag_segments_.push_back(segment);
    at += piece.count;
    bags += piece.job->bags;
  }
  if (bags == 0) return {};
  offset_staging_[bags] = at;
  device::PooledBatch batch;
  batch.ids = {segments_.data(), static_cast<uint32_t>(segments_.size()), staging.ids, at};
  batch.bags = bag_segments_.data();
  batch.offsets = offset_staging_;
  batch.bags_count = bags;
  batch.pooling = first.pooling;
  batch.weights = weighted ? weight_staging_ : nullptr;
  if (places) arg_max_.resize(uint64_t{first.dim} * bags);
  PlaceRows(&message->pieces, staging.rows);
  return rows_->PullPooled(batch, parts_, places ? arg_max_.data() : nullptr, first.dim,
                           &message->missing);
}

}  // namespace hotbed
