// The calls of DeviceRows that read, and messages in flight.
#include <algorithm>
#include <string>

#include "device/device_rows.h"
#include "device/missing.h"

namespace hotbed {
namespace device {
namespace {

std::string Number(uint64_t value) { return std::to_string(value); }

// Parts that are adjacent at both ends are one copy.
template <typename F>
void ForEachCopy(const std::vector<RowsOut>& parts, F f) {
  for (size_t next = 0; next < parts.size();) {
    RowsOut copy = parts[next++];
    while (next < parts.size() && parts[next].rows_at == copy.rows_at + copy.bytes &&
           parts[next].to == copy.to + copy.bytes) {
      copy.bytes += parts[next++].bytes;
    }
    f(copy);
  }
}

}  // namespace

// --- messages in flight

Status DeviceRows::CheckIdle() const {
  for (const Flight& flight : flights_) {
    if (flight.started) return {Code::kTooLarge, "a message is under way: finish it first"};
  }
  return {};
}

Status DeviceRows::OpenFlight(uint32_t flight) const {
  if (flight < kFlights && !flights_[flight].started) return {};
  return {Code::kTooLarge, "a message in room " + Number(flight) + " of " + Number(kFlights) +
                               ", which has one under way: finish that first"};
}

// The mark comes after everything of the message, including the copy of the numbers: once it is
// reached, the message's arrays may be reused.
void DeviceRows::CloseFlight(uint32_t flight, uint32_t ids_count) {
  device_->Order(Queue::kOut, Queue::kWork);
  Flight& closed = flights_[flight];
  closed.mark = device_->Mark(Queue::kOut);
  closed.ids_count = ids_count;
  closed.started = true;
}

// Segments go through staging memory: copies from other memory would not be in one queue alone.
void DeviceRows::SendBatch(const Batch& batch, Flight* flight) {
  std::copy_n(batch.segments, batch.segment_count, flight->staged_segments);
  device_->CopyInAside(flight->segments, flight->staged_segments,
                       sizeof(Segment) * batch.segment_count);
  device_->CopyInAside(flight->ids, batch.ids, sizeof(uint64_t) * batch.ids_count);
  device_->Order(Queue::kWork, Queue::kIn);
}

bool DeviceRows::LeavesRowsOf(const Batch& batch) const {
  return std::any_of(
      batch.segments, batch.segments + batch.segment_count,
      [&](const Segment& segment) { return LeavesRows(segment, tables_[segment.table].shape); });
}

void DeviceRows::Find(const Batch& batch, const Flight& flight, Finding finding, uint8_t* rows,
                      uint8_t* flags) {
  ReadWork work;
  work.tables = room_.tables;
  work.segments = {flight.segments, batch.segment_count, batch.ids_count};
  work.ids = flight.ids;
  work.visit = finding != Finding::kLook;
  work.numbers = flight.numbers;
  work.missing = flight.missing;
  work.rows = rows;
  work.flags = flags;
  device_->Run(work);
  if (rows != nullptr && LeavesRowsOf(batch)) device_->Run(LeftWork{work});
  device_->Order(Queue::kOut, Queue::kWork);
  device_->CopyOutAside(flight.staged_missing, flight.missing,
                        sizeof(uint32_t) * MissingWords(batch.ids_count));
}

void DeviceRows::ListMissing(const Flight& flight, uint32_t count, std::vector<uint32_t>* missing) {
  missing->clear();
  ForMissing(flight.staged_missing, count, [missing](uint32_t k) { missing->push_back(k); });
}

Status DeviceRows::CheckParts(const std::vector<RowsOut>& parts, uint64_t row_bytes) {
  for (const RowsOut& part : parts) {
    if (part.bytes <= row_bytes && part.rows_at <= row_bytes - part.bytes) continue;
    return {Code::kTooLarge, "a part of " + Number(part.bytes) + " bytes at " +
                                 Number(part.rows_at) + " of a message's rows, which have " +
                                 Number(row_bytes) + ": cut it"};
  }
  return {};
}

Status DeviceRows::StartPull(uint32_t flight, const Batch& batch, uint8_t* rows, uint8_t* flags) {
  uint64_t row_bytes = 0;
  if (Status status = Check(batch, false, &row_bytes); !status.ok()) return status;
  return StartPull(flight, batch, {{0, row_bytes, rows}}, flags);
}

Status DeviceRows::StartPull(uint32_t flight, const Batch& batch, const std::vector<RowsOut>& parts,
                             uint8_t* flags) {
  uint64_t row_bytes = 0;
  if (Status status = OpenFlight(flight); !status.ok()) return status;
  if (Status status = Check(batch, false, &row_bytes); !status.ok()) return status;
  if (Status status = CheckParts(parts, row_bytes); !status.ok()) return status;
  Flight& at = flights_[flight];
  SendBatch(batch, &at);
  Find(batch, at, Finding::kVisit, at.rows, flags != nullptr ? at.flags : nullptr);
  ForEachCopy(parts, [&](const RowsOut& copy) {
    device_->CopyOutAside(copy.to, at.rows + copy.rows_at, copy.bytes);
  });
  if (flags != nullptr) device_->CopyOutAside(flags, at.flags, batch.ids_count);
  CloseFlight(flight, batch.ids_count);
  return {};
}

Status DeviceRows::StartProbe(uint32_t flight, const Batch& batch) {
  if (Status status = OpenFlight(flight); !status.ok()) return status;
  if (Status status = Check(batch, false, nullptr); !status.ok()) return status;
  SendBatch(batch, &flights_[flight]);
  Find(batch, flights_[flight], Finding::kLook, nullptr, nullptr);
  CloseFlight(flight, batch.ids_count);
  return {};
}

Status DeviceRows::StartUpdate(uint32_t flight, const Batch& batch, const uint8_t* gradients) {
  uint64_t row_bytes = 0;
  if (Status status = OpenFlight(flight); !status.ok()) return status;
  if (Status status = Check(batch, true, &row_bytes); !status.ok()) return status;
  if (Status status = CheckSums(batch); !status.ok()) return status;
  SendBatch(batch, &flights_[flight]);
  Find(batch, flights_[flight], Finding::kVisit, nullptr, nullptr);
  RunUpdate(batch, flights_[flight], gradients, row_bytes);
  CloseFlight(flight, batch.ids_count);
  return {};
}

Status DeviceRows::Finish(uint32_t flight, std::vector<uint32_t>* missing) {
  if (flight >= kFlights || !flights_[flight].started) {
    return {Code::kTooLarge, "nothing is under way in room " + Number(flight)};
  }
  flights_[flight].started = false;
  Status status = device_->WaitFor(flights_[flight].mark);
  if (status.ok()) ListMissing(flights_[flight], flights_[flight].ids_count, missing);
  return status;
}

Status DeviceRows::CheckPooled(const PooledBatch& batch, uint64_t* row_bytes) const {
  if (Status status = Check(batch.ids, false, nullptr); !status.ok()) return status;
  const Batch bags = {batch.bags, batch.ids.segment_count, nullptr, batch.bags_count};
  if (Status status = Check(bags, false, row_bytes); !status.ok()) return status;
  bool whole = batch.offsets[0] == 0 && batch.offsets[batch.bags_count] == batch.ids.ids_count;
  for (uint32_t b = 0; b < batch.bags_count; ++b) {
    whole = whole && batch.offsets[b] <= batch.offsets[b + 1];
  }
  for (uint32_t s = 0; s < batch.ids.segment_count; ++s) {
    whole = whole && batch.bags[s].table == batch.ids.segments[s].table &&
            batch.bags[s].type != RowType::kInt8 &&
            batch.offsets[batch.bags[s].first] == batch.ids.segments[s].first;
  }
  if (whole) return {};
  return {Code::kTooLarge,
          "bags that do not cut the ids of their segments, or are asked for in int8"};
}

Status DeviceRows::PullPooled(const PooledBatch& batch, uint8_t* rows, uint32_t* arg_max,
                              uint32_t arg_stride, std::vector<uint32_t>* incomplete) {
  uint64_t row_bytes = 0;
  if (Status status = CheckPooled(batch, &row_bytes); !status.ok()) return status;
  return PullPooled(batch, {{0, row_bytes, rows}}, arg_max, arg_stride, incomplete);
}

Status DeviceRows::PullPooled(const PooledBatch& batch, const std::vector<RowsOut>& parts,
                              uint32_t* arg_max, uint32_t arg_stride,
                              std::vector<uint32_t>* incomplete) {
  uint64_t row_bytes = 0;
  if (Status status = CheckIdle(); !status.ok()) return status;
  if (Status status = CheckPooled(batch, &row_bytes); !status.ok()) return status;
  if (Status status = CheckParts(parts, row_bytes); !status.ok()) return status;
  const uint64_t arg_bytes = arg_max == nullptr ? 0 : 4ull * arg_stride * batch.bags_count;
  if (arg_bytes > options_.move_bytes_max) {
    return {Code::kTooLarge, "places of " + Number(arg_bytes) + " bytes in one message, at most " +
                                 Number(options_.move_bytes_max) + ": cut it"};
  }
  const Flight& flight = flights_[0];
  SendBatch(batch.ids, &flights_[0]);
  const uint32_t segments = batch.ids.segment_count;
  std::copy_n(batch.bags, segments, staging_.bag_segments);
  device_->CopyIn(room_.bag_segments, staging_.bag_segments, sizeof(Segment) * segments);
  device_->CopyIn(room_.offsets, batch.offsets, sizeof(uint32_t) * (batch.bags_count + 1));
  if (batch.weights != nullptr) {
    device_->CopyIn(room_.weights, batch.weights, sizeof(float) * batch.ids.ids_count);
  }
  Find(batch.ids, flight, Finding::kVisit, nullptr, nullptr);
  PoolWork work;
  work.tables = room_.tables;
  work.segments = {room_.bag_segments, segments, batch.bags_count};
  work.offsets = room_.offsets;
  work.ids = flight.ids;
  work.numbers = flight.numbers;
  work.pooling = batch.pooling;
  work.mean = batch.mean;
  work.weights = batch.weights != nullptr ? room_.weights : nullptr;
  work.rows = flight.rows;
  work.arg_max = arg_max != nullptr ? reinterpret_cast<uint32_t*>(room_.victim_rows) : nullptr;
  work.arg_stride = arg_stride;
  work.incomplete = flight.flags;
  device_->Run(work);
  ForEachCopy(parts, [&](const RowsOut& copy) {
    device_->CopyOut(copy.to, flight.rows + copy.rows_at, copy.bytes);
  });
  auto* const flags = reinterpret_cast<uint8_t*>(staging_.positions);
  device_->CopyOut(flags, flight.flags, batch.bags_count);
  if (arg_max != nullptr) device_->CopyOut(arg_max, room_.victim_rows, arg_bytes);
  Status status = device_->Wait();
  incomplete->clear();
  for (uint32_t b = 0; status.ok() && b < batch.bags_count; ++b) {
    if (flags[b] != 0) incomplete->push_back(b);
  }
  return status;
}

}  // namespace device
}  // namespace hotbed
