#include "server/tiers/device/device_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

// Messages large enough that launches and waits cost little, and small compared with the rows; two
// of them are in flight.
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

// Whether a message of this kind may run while another one does.
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
      name_(device_->Describe()),
      staging_(device_) {}

absl::Status DeviceTier::TakeMemory() {
  HOTBED_RETURN_IF_ERROR(StatusOf(device::DeviceRows::Open(device_.get(), options_, &rows_)));
  HOTBED_RETURN_IF_ERROR(StatusOf(staging_.Take(options_)));
  slab_bytes_ = rows_->free_bytes();
  counters_.bytes.store(options_.device_bytes - slab_bytes_, std::memory_order_relaxed);
  return absl::OkStatus();
}

DeviceTier::~DeviceTier() {
  own_io_ = nullptr;  // ends what is queued
  rows_ = nullptr;
}

absl::Status DeviceTier::error() const {
  absl::MutexLock lock(&mu_);
  return error_;
}

void DeviceTier::AddNumbers(StatusNumbers* numbers) const {
  const auto get = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  numbers->Add("device_bytes_limit", "hotbed_server_device_limit_bytes",
               "Device memory that the server has.", bytes_limit());
  numbers->Add("device_bytes", "hotbed_server_device_bytes",
               "Device memory taken, for rows, index and messages.", get(counters_.bytes));
  numbers->Add("device_pinned_bytes", "hotbed_server_device_pinned_bytes",
               "Memory of answers that the device copies into.", pinner_->bytes());
  numbers->Add("device_rows_direct_bytes", "hotbed_server_device_rows_direct_bytes_total",
               "Bytes of rows that the device copied straight into answers.",
               get(counters_.direct_bytes));
  numbers->Add("device_rows_copied_bytes", "hotbed_server_device_rows_copied_bytes_total",
               "Bytes of rows from the device that were copied once more on the host.",
               get(counters_.copied_bytes));
  numbers->Add("", "hotbed_server_device_failed",
               "1 once the device has failed: restart the server.", failed());
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
                     "again, as what was acknowledged is in the log; read copies are served from "
                     "memory and disk"));
    HOTBED_LOG(Error) << error_;
    failed_.store(true, std::memory_order_release);
  }
  return error_;
}

void DeviceTier::Submit(std::shared_ptr<DeviceJob> job) {
  HOTBED_DCHECK(job->kind == DeviceJob::Kind::kCall || job->kind == DeviceJob::Kind::kPooled ||
                job->count > 0);
  absl::MutexLock lock(&mu_);
  if (IsRead(*job)) counters_.pulls_waiting.fetch_add(1, std::memory_order_relaxed);
  queue_.push_back(std::move(job));
  if (std::exchange(draining_, true)) return;
  if (io_ == nullptr) {
    own_io_ = std::make_unique<ThreadedIoQueue>("device", 1);
    io_ = own_io_.get();
  }
  io_->Submit([this] { Drain(); });
}

// Between two tasks no message is in flight. Within a task, a message is started before the
// previous one is ended; a message that cannot be started that way waits for the end.
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

// Calls f() inside the gate of the piece's shard, if that is still open. f uses the shard's memory
// but runs none of its code. A thread is inside one gate at a time, and inside none while a message
// is in flight: a `done` of another message may close the gate.
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

// Waits for the message if it was started, hands out its answers and runs `done` of its jobs.
// Leaves no pieces; does nothing if there are none.
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
  counters_.bytes.store(options_.device_bytes - rows_->free_bytes(), std::memory_order_relaxed);
  for (const Piece& piece : message->pieces) {
    if (!piece.is_last) continue;
    if (IsRead(*piece.job)) counters_.pulls_waiting.fetch_sub(1, std::memory_order_relaxed);
    Finish(piece.job);
  }
  *message = Message();
}

// Inside one gate alone: the executor may run a task that closes it.
void DeviceTier::Finish(const std::shared_ptr<DeviceJob>& job) {
  if (job->executor == nullptr || absl::IsCancelled(job->status)) return;
  if (job->gate != nullptr && !job->gate->Enter()) return;
  job->executor->Run([job] { job->done(); });
  if (job->gate != nullptr) job->gate->Leave();
}

device::Status DeviceTier::StartTogether(Message* message) {
  const DeviceJob::Kind kind = message->kind();
  message->flight = next_flight_;
  const DeviceStaging::Flight& staging = staging_.flight(message->flight);
  scratch_.segments.clear();
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
    scratch_.segments.push_back(segment);
  }
  if (at == 0) return {};
  const device::Batch batch = {scratch_.segments.data(),
                               static_cast<uint32_t>(scratch_.segments.size()), staging.ids, at};
  device::Status status;
  if (kind == DeviceJob::Kind::kPull) {
    PlaceRows(&message->pieces, staging.rows);
    status = rows_->StartPull(message->flight, batch, scratch_.parts, staging.flags);
  } else if (kind == DeviceJob::Kind::kProbe) {
    status = rows_->StartProbe(message->flight, batch);
  } else {
    status = rows_->StartUpdate(message->flight, batch, staging.rows);
  }
  message->is_started = status.ok();
  if (status.ok()) next_flight_ = (next_flight_ + 1) % device::kFlights;
  return status;
}

// Leaves out jobs of shards that are gone.
device::Status DeviceTier::RunPooled(Message* message) {
  const DeviceStaging::Flight& staging = staging_.flight(0);
  scratch_.segments.clear();
  scratch_.bag_segments.clear();
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
    scratch_.segments.push_back(segment);
    segment.first = bags;
    segment.rows_at = piece.rows_at;
    segment.type = piece.job->type;
    scratch_.bag_segments.push_back(segment);
    at += piece.count;
    bags += piece.job->bags;
  }
  if (bags == 0) return {};
  staging_.bag_offsets()[bags] = at;
  device::PooledBatch batch;
  batch.ids = {scratch_.segments.data(), static_cast<uint32_t>(scratch_.segments.size()),
               staging.ids, at};
  batch.bags = scratch_.bag_segments.data();
  batch.offsets = staging_.bag_offsets();
  batch.bags_count = bags;
  batch.pooling = first.pooling;
  batch.weights = weighted ? staging_.weights() : nullptr;
  if (places) scratch_.arg_max.resize(uint64_t{first.dim} * bags);
  PlaceRows(&message->pieces, staging.rows);
  return rows_->PullPooled(batch, scratch_.parts, places ? scratch_.arg_max.data() : nullptr,
                           first.dim, &message->missing);
}

}  // namespace hotbed
