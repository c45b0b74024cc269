// Composing messages: which jobs go into a message together, and the copies between the jobs'
// memory and staging memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/check.h"
#include "server/tiers/device/device_tier.h"

namespace hotbed {
namespace {

constexpr uint32_t kJobsLookedAt = 4096;  // of the queue, for one message

uint64_t RoundUp16(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

uint64_t WireBytes(const DeviceJob& job) { return RowWireBytes(job.type, job.dim); }

// Pooled jobs can share a message only if pooling, weights and arg_max stride agree.
bool IsAlike(const DeviceJob& a, const DeviceJob& b) {
  if (a.kind != b.kind) return false;
  if (a.kind != DeviceJob::Kind::kPooled) return true;
  const bool places = a.arg_max != nullptr;
  return a.pooling == b.pooling && (a.weights != nullptr) == (b.weights != nullptr) &&
         places == (b.arg_max != nullptr) && (!places || a.dim == b.dim);
}

}  // namespace

// A message of the first job and all jobs that can go with it; no job overtakes an earlier job of
// its table. No pieces: the queue is empty.
DeviceTier::Message DeviceTier::NextMessage() {
  Message message;
  absl::MutexLock lock(&mu_);
  if (queue_.empty()) return message;
  const std::shared_ptr<DeviceJob> first = queue_.front();
  if (first->kind == DeviceJob::Kind::kCall) {
    message.pieces.push_back({first});
    queue_.pop_front();
    return message;
  }
  absl::flat_hash_set<uint32_t> overtaken;
  std::deque<std::shared_ptr<DeviceJob>> left;
  uint32_t dim_max = 0;
  while (!queue_.empty() && left.size() + message.pieces.size() < kJobsLookedAt) {
    const std::shared_ptr<DeviceJob>& job = queue_.front();
    // A call may touch any table.
    if (job->kind == DeviceJob::Kind::kCall) break;
    if (IsAlike(*job, *first) && !overtaken.contains(job->table)) {
      const bool added = job->kind == DeviceJob::Kind::kPooled ? AddPooled(job, &message)
                                                               : AddPiece(job, &message, &dim_max);
      if (!added || !message.pieces.back().is_last) break;
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
  if (!message->pieces.empty()) {
    const Piece& last = message->pieces.back();
    piece.at = last.at + last.count;
    piece.rows_at = RoundUp16(last.rows_at + WireBytes(*last.job) * last.count);
  }
  uint64_t room = options_.ids_max - piece.at;
  if (job->kind != DeviceJob::Kind::kProbe) {
    const uint64_t bytes = options_.row_bytes_max - std::min(piece.rows_at, options_.row_bytes_max);
    room = std::min(room, bytes / WireBytes(*job));
  }
  const uint32_t widest = std::max(*dim_max, job->dim);
  if (job->kind == DeviceJob::Kind::kUpdate) {
    // DeviceRows has memory for the sums of this many rows of the widest table.
    const uint64_t rows = options_.row_bytes_max / RoundUp16(4ull * widest);
    room = std::min(room, rows - std::min<uint64_t>(rows, piece.at));
  }
  if (message->pieces.size() == options_.segments_max) room = 0;
  piece.count = static_cast<uint32_t>(std::min<uint64_t>(room, job->count - job->taken));
  if (piece.count == 0) {
    HOTBED_CHECK(!message->pieces.empty()) << "a message has no room for a row of dim " << job->dim;
    return false;
  }
  *dim_max = widest;
  job->taken += piece.count;
  piece.is_last = job->taken == job->count;
  message->pieces.push_back(std::move(piece));
  return true;
}

bool DeviceTier::FitsPooled(const DeviceJob& job) const {
  return job.count <= options_.ids_max && job.bags < options_.ids_max &&
         WireBytes(job) * job.bags <= options_.row_bytes_max &&
         (job.arg_max == nullptr || 4ull * job.dim * job.bags <= options_.move_bytes_max);
}

// False: the message is full.
bool DeviceTier::AddPooled(const std::shared_ptr<DeviceJob>& job, Message* message) const {
  Piece piece;
  piece.job = job;
  piece.count = job->count;
  if (!message->pieces.empty()) {
    const Piece& last = message->pieces.back();
    piece.at = last.at + last.count;
    piece.bags_at = last.bags_at + last.job->bags;
    piece.rows_at = RoundUp16(last.rows_at + WireBytes(*last.job) * last.job->bags);
    const uint64_t bags = uint64_t{piece.bags_at} + job->bags;
    if (uint64_t{piece.at} + piece.count > options_.ids_max || bags >= options_.ids_max ||
        piece.rows_at + WireBytes(*job) * job->bags > options_.row_bytes_max ||
        (job->arg_max != nullptr && 4ull * job->dim * bags > options_.move_bytes_max) ||
        message->pieces.size() == options_.segments_max) {
      return false;
    }
  }
  HOTBED_CHECK(!message->pieces.empty() || FitsPooled(*job)) << job->bags << " bags of a job";
  job->taken = job->count;
  message->pieces.push_back(std::move(piece));
  return true;
}

// --- between a job's memory and the message's

void DeviceTier::Pack(const Piece& piece, const DeviceStaging::Flight& staging) const {
  const DeviceJob& job = *piece.job;
  std::copy_n(job.ids + piece.first, piece.count, staging.ids + piece.at);
  if (job.kind != DeviceJob::Kind::kUpdate) return;
  const uint64_t wire = WireBytes(job);
  uint8_t* to = staging.rows + piece.rows_at;
  for (uint32_t k = piece.first; k < piece.first + piece.count; ++k, to += wire) {
    std::memcpy(to, job.gradients[k], wire);
  }
}

void DeviceTier::PackBags(const Piece& piece) const {
  const DeviceJob& job = *piece.job;
  std::copy_n(job.ids, piece.count, staging_.flight(0).ids + piece.at);
  if (job.weights != nullptr) std::copy_n(job.weights, piece.count, staging_.weights() + piece.at);
  uint32_t offset = piece.at;
  for (uint32_t bag = 0; bag < job.bags; ++bag) {
    staging_.bag_offsets()[piece.bags_at + bag] = offset;
    offset += job.bag_lengths[bag];
  }
}

uint64_t DeviceTier::Piece::row_bytes() const {
  return WireBytes(*job) * (job->kind == DeviceJob::Kind::kPooled ? job->bags : count);
}

uint8_t* DeviceTier::Piece::to() const { return job->rows + WireBytes(*job) * first; }

// Called inside the job's gate, while the answer surely belongs to the job.
void DeviceTier::HoldAnswer(Piece* piece) {
  const DeviceJob& job = *piece->job;
  if (job.answer == nullptr || !job.answer->pinned()) return;
  job.answer->Hold();
  piece->held.reset(job.answer);
}

// Whether both pieces can be one copy: adjacent in the message and in the memory of one answer.
bool DeviceTier::Follows(const Piece& later, const Piece& earlier) {
  return later.held != nullptr && later.held.get() == earlier.held.get() &&
         later.rows_at == earlier.rows_at + earlier.row_bytes() &&
         later.to() == earlier.to() + earlier.row_bytes();
}

// Decides where the device copies each piece: long runs that are adjacent in pinned memory go
// straight there, all others to staging memory. Consecutive staged pieces are one copy, including
// the gaps between them.
void DeviceTier::PlaceRows(std::vector<Piece>* pieces, uint8_t* staged) {
  scratch_.parts.clear();
  bool is_last_staged = false;
  for (size_t first = 0, limit = 0; first < pieces->size(); first = limit) {
    Piece& begin = (*pieces)[first];
    uint64_t bytes = begin.row_bytes();
    for (limit = first + 1; limit < pieces->size(); ++limit) {
      if (!Follows((*pieces)[limit], (*pieces)[limit - 1])) break;
      bytes += (*pieces)[limit].row_bytes();
    }
    if (!begin.is_open) continue;
    const bool is_direct = begin.held != nullptr && bytes >= direct_bytes_min_;
    for (size_t k = first; k < limit; ++k) {
      Piece& piece = (*pieces)[k];
      piece.is_direct = is_direct;
      if (!is_direct) piece.held = nullptr;
    }
    if (!is_direct && is_last_staged) {
      scratch_.parts.back().bytes = begin.rows_at + bytes - scratch_.parts.back().rows_at;
    } else {
      scratch_.parts.push_back(
          {begin.rows_at, bytes, is_direct ? begin.to() : staged + begin.rows_at});
    }
    is_last_staged = !is_direct;
  }
}

void DeviceTier::CopyRows(const Piece& piece, const uint8_t* staged) {
  const uint64_t bytes = piece.row_bytes();
  (piece.is_direct ? counters_.direct_bytes : counters_.copied_bytes)
      .fetch_add(bytes, std::memory_order_relaxed);
  if (!piece.is_direct) std::memcpy(piece.to(), staged + piece.rows_at, bytes);
}

void DeviceTier::HandOut(const Piece& piece, const Message& message) {
  DeviceJob& job = *piece.job;
  const DeviceStaging::Flight& staging = staging_.flight(message.flight);
  const std::vector<uint32_t>& missing = message.missing;
  for (auto next = std::lower_bound(missing.begin(), missing.end(), piece.at);
       next != missing.end() && *next < piece.at + piece.count; ++next) {
    job.missing.push_back(*next - piece.at + piece.first);
  }
  if (job.kind != DeviceJob::Kind::kPull) return;
  CopyRows(piece, staging.rows);
  if (job.flags != nullptr) {
    std::memcpy(job.flags + piece.first, staging.flags + piece.at, piece.count);
  }
}

// The rows of incomplete bags hold no values.
void DeviceTier::HandOutBags(const Piece& piece, const Message& message) {
  DeviceJob& job = *piece.job;
  const std::vector<uint32_t>& incomplete = message.missing;
  for (auto next = std::lower_bound(incomplete.begin(), incomplete.end(), piece.bags_at);
       next != incomplete.end() && *next < piece.bags_at + job.bags; ++next) {
    job.missing.push_back(*next - piece.bags_at);
  }
  CopyRows(piece, staging_.flight(0).rows);
  if (job.arg_max == nullptr) return;
  const uint64_t row = 4ull * job.dim;
  std::memcpy(job.arg_max,
              reinterpret_cast<const uint8_t*>(scratch_.arg_max.data()) + row * piece.bags_at,
              row * job.bags);
}

}  // namespace hotbed
