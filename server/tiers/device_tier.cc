#include "server/tiers/device_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kMiB = 1ull << 20;
constexpr uint32_t kJobsLookedAt = 4096;  // of the queue, for one message

uint64_t RoundUp16(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

// Messages large enough that launches and waits cost little, and small beside the rows.
device::RowsOptions LimitsFor(uint64_t device_bytes, uint64_t host_bytes_max) {
  device::RowsOptions options;
  options.device_bytes = device_bytes;
  options.row_bytes_max =
      std::clamp(std::min(device_bytes / 32, host_bytes_max / 4), kMiB, 64 * kMiB);
  options.move_bytes_max = std::clamp(options.row_bytes_max / 4, kMiB, 16 * kMiB);
  options.ids_max =
      static_cast<uint32_t>(std::clamp<uint64_t>(options.row_bytes_max / 64, 1u << 14, 1u << 18));
  options.segments_max = 4096;
  return options;
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

DeviceTier::DeviceTier(std::unique_ptr<device::Device> device, const device::RowsOptions& options)
    : device_(std::move(device)), options_(options), name_(device_->Describe()) {}

absl::Status DeviceTier::TakeMemory() {
  HOTBED_RETURN_IF_ERROR(StatusOf(device::DeviceRows::Open(device_.get(), options_, &rows_)));
  uint8_t* ids = nullptr;
  HOTBED_RETURN_IF_ERROR(StatusOf(device_->AllocateStaging(options_.row_bytes_max, &row_staging_)));
  HOTBED_RETURN_IF_ERROR(
      StatusOf(device_->AllocateStaging(uint64_t{sizeof(uint64_t)} * options_.ids_max, &ids)));
  id_staging_ = reinterpret_cast<uint64_t*>(ids);
  HOTBED_RETURN_IF_ERROR(StatusOf(device_->AllocateStaging(options_.ids_max, &flag_staging_)));
  slab_bytes_ = rows_->free_bytes();
  bytes_.store(options_.device_bytes - slab_bytes_, std::memory_order_relaxed);
  host_bytes_ = options_.row_bytes_max + 9ull * options_.ids_max + rows_->staging_bytes();
  return absl::OkStatus();
}

DeviceTier::~DeviceTier() {
  own_io_ = nullptr;  // ends what is queued
  rows_ = nullptr;
  device_->FreeStaging(row_staging_);
  device_->FreeStaging(reinterpret_cast<uint8_t*>(id_staging_));
  device_->FreeStaging(flag_staging_);
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
  HOTBED_DCHECK(job->kind == DeviceJob::Kind::kCall || job->count > 0);
  absl::MutexLock lock(&mu_);
  if (job->kind == DeviceJob::Kind::kPull) pulls_waiting_.fetch_add(1, std::memory_order_relaxed);
  queue_.push_back(std::move(job));
  if (std::exchange(draining_, true)) return;
  if (io_ == nullptr) {
    own_io_ = std::make_unique<ThreadedIoQueue>(1);
    io_ = own_io_.get();
  }
  io_->Submit([this] { Drain(); });
}

void DeviceTier::Drain() {
  const Message message = NextMessage();
  Run(message);
  absl::MutexLock lock(&mu_);
  draining_ = !queue_.empty();
  if (draining_) io_->Submit([this] { Drain(); });
}

// The first job, and all that can go with it: nothing overtakes an earlier job of its table.
DeviceTier::Message DeviceTier::NextMessage() {
  Message message;
  absl::MutexLock lock(&mu_);
  const DeviceJob::Kind kind = queue_.front()->kind;
  if (kind == DeviceJob::Kind::kCall) {
    message.push_back({std::move(queue_.front())});
    queue_.pop_front();
    return message;
  }
  absl::flat_hash_set<uint32_t> overtaken;
  std::deque<std::shared_ptr<DeviceJob>> left;
  uint32_t dim_max = 0;
  while (!queue_.empty() && left.size() + message.size() < kJobsLookedAt) {
    const std::shared_ptr<DeviceJob>& job = queue_.front();
    // A call may be of any table.
    if (job->kind == DeviceJob::Kind::kCall) break;
    if (job->kind == kind && !overtaken.contains(job->table)) {
      if (!AddPiece(job, &message, &dim_max)) break;
      if (job->taken < job->count) break;
    } else {
      overtaken.insert(job->table);
      left.push_back(job);
    }
    queue_.pop_front();
  }
  queue_.insert(queue_.begin(), left.begin(), left.end());
  return message;
}

// False: the message is full.
bool DeviceTier::AddPiece(const std::shared_ptr<DeviceJob>& job, Message* message,
                          uint32_t* dim_max) const {
  Piece piece;
  piece.job = job;
  piece.first = job->taken;
  const uint64_t wire = RowWireBytes(job->type, job->dim);
  if (!message->empty()) {
    const Piece& last = message->back();
    piece.at = last.at + last.count;
    piece.rows_at = RoundUp16(last.rows_at +
                              RowWireBytes(last.job->type, last.job->dim) * uint64_t{last.count});
  }
  uint64_t room = options_.ids_max - piece.at;
  if (job->kind != DeviceJob::Kind::kProbe) {
    const uint64_t bytes = options_.row_bytes_max - std::min(piece.rows_at, options_.row_bytes_max);
    room = std::min(room, bytes / wire);
  }
  const uint32_t widest = std::max(*dim_max, job->dim);
  if (job->kind == DeviceJob::Kind::kUpdate) {
    // DeviceRows has sums for so many rows of the widest table.
    const uint64_t rows = options_.row_bytes_max / RoundUp16(4ull * widest);
    room = std::min(room, rows - std::min<uint64_t>(rows, piece.at));
  }
  if (message->size() == options_.segments_max) room = 0;
  piece.count = static_cast<uint32_t>(std::min<uint64_t>(room, job->count - job->taken));
  if (piece.count == 0) {
    HOTBED_CHECK(!message->empty()) << "a message has no room for a row of dim " << job->dim;
    return false;
  }
  *dim_max = widest;
  job->taken += piece.count;
  message->push_back(std::move(piece));
  return true;
}

void DeviceTier::Run(const Message& message) {
  // Inside of the gates nothing of a shard is run, only its memory is used.
  Message open;
  for (const Piece& piece : message) {
    if (piece.job->gate == nullptr || piece.job->gate->Enter()) {
      open.push_back(piece);
    } else {
      piece.job->status = absl::CancelledError("the shard is gone");
    }
  }
  // What is left has gaps where jobs were dropped.
  uint32_t at = 0;
  for (Piece& piece : open) {
    piece.at = at;
    at += piece.count;
  }
  if (!open.empty()) {
    device::Status status;
    if (failed()) {
      status.code = device::Code::kFailed;
    } else if (open.front().job->kind == DeviceJob::Kind::kCall) {
      status = open.front().job->call(rows_.get());
    } else {
      status = RunTogether(open);
    }
    const absl::Status told = StatusOf(status);
    for (const Piece& piece : open) {
      if (piece.job->status.ok()) piece.job->status = told;
      if (piece.job->gate != nullptr) piece.job->gate->Leave();
    }
    bytes_.store(options_.device_bytes - rows_->free_bytes(), std::memory_order_relaxed);
  }
  for (const Piece& piece : message) {
    if (piece.job->taken < piece.job->count) continue;
    if (piece.job->kind == DeviceJob::Kind::kPull) {
      pulls_waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    Finish(piece.job);
  }
}

// Told inside of one gate alone: the executor may run what closes it.
void DeviceTier::Finish(const std::shared_ptr<DeviceJob>& job) {
  if (job->executor == nullptr || absl::IsCancelled(job->status)) return;
  if (job->gate != nullptr && !job->gate->Enter()) return;
  job->executor->Run([job] { job->done(); });
  if (job->gate != nullptr) job->gate->Leave();
}

device::Status DeviceTier::RunTogether(const Message& message) {
  const DeviceJob::Kind kind = message.front().job->kind;
  segments_.clear();
  for (const Piece& piece : message) {
    const DeviceJob& job = *piece.job;
    std::copy_n(job.ids + piece.first, piece.count, id_staging_ + piece.at);
    device::Segment segment;
    segment.table = job.table;
    segment.first = piece.at;
    segment.type = job.type;
    if (kind != DeviceJob::Kind::kProbe) segment.rows_at = piece.rows_at;
    segment.assign = job.assign;
    segment.scalars = job.scalars;
    segments_.push_back(segment);
  }
  const device::Batch batch = {segments_.data(), static_cast<uint32_t>(segments_.size()),
                               id_staging_, message.back().at + message.back().count};
  std::vector<uint32_t> missing;
  device::Status status;
  if (kind == DeviceJob::Kind::kPull) {
    status = rows_->Pull(batch, row_staging_, flag_staging_, &missing);
  } else if (kind == DeviceJob::Kind::kProbe) {
    status = rows_->Probe(batch, &missing);
  } else {
    PackGradients(message);
    status = rows_->Update(batch, row_staging_, &missing);
  }
  if (status.ok()) HandOut(message, missing);
  return status;
}

void DeviceTier::PackGradients(const Message& message) {
  for (const Piece& piece : message) {
    const DeviceJob& job = *piece.job;
    const uint64_t wire = RowWireBytes(job.type, job.dim);
    uint8_t* to = row_staging_ + piece.rows_at;
    for (uint32_t k = piece.first; k < piece.first + piece.count; ++k, to += wire) {
      std::memcpy(to, job.gradients[k], wire);
    }
  }
}

void DeviceTier::HandOut(const Message& message, const std::vector<uint32_t>& missing) {
  size_t next = 0;
  for (const Piece& piece : message) {
    DeviceJob& job = *piece.job;
    for (; next < missing.size() && missing[next] < piece.at + piece.count; ++next) {
      job.missing.push_back(missing[next] - piece.at + piece.first);
    }
    if (job.kind != DeviceJob::Kind::kPull) continue;
    const uint64_t wire = RowWireBytes(job.type, job.dim);
    std::memcpy(job.rows + wire * piece.first, row_staging_ + piece.rows_at, wire * piece.count);
    if (job.flags != nullptr) {
      std::memcpy(job.flags + piece.first, flag_staging_ + piece.at, piece.count);
    }
  }
}

}  // namespace hotbed
