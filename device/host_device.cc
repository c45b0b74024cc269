#include "device/host_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "device/step_kinds.h"
#include "device/team.h"

namespace hotbed {
namespace device {
namespace {

// Before each allocation: its size.
constexpr uint64_t kAlignment = 256;

uint8_t* AllocateZeroed(uint64_t bytes) {
  const uint64_t whole = (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;
  auto* const memory = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, whole));
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0, whole);
  std::memcpy(memory, &bytes, sizeof(bytes));
  return memory + kAlignment;
}

uint64_t BytesOf(const uint8_t* memory) {
  uint64_t bytes;
  std::memcpy(&bytes, memory - kAlignment, sizeof(bytes));
  return bytes;
}

}  // namespace

Status HostDevice::Allocate(uint64_t bytes, uint8_t** memory) {
  *memory = nullptr;
  const uint64_t left = options_.bytes_max - bytes_;
  if (bytes <= left) *memory = AllocateZeroed(bytes);
  if (*memory == nullptr) {
    return {Code::kNoMemory, "device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                 std::to_string(left) + " free; lower --device-bytes"};
  }
  bytes_ += bytes;
  return {};
}

void HostDevice::Free(uint8_t* memory) {
  if (memory == nullptr) return;
  bytes_ -= BytesOf(memory);
  std::free(memory - kAlignment);
}

Status HostDevice::AllocateStaging(uint64_t bytes, uint8_t** memory) {
  *memory = AllocateZeroed(bytes);
  if (*memory != nullptr) return {};
  return {Code::kNoMemory, "host memory: " + std::to_string(bytes) + " bytes wanted for staging"};
}

void HostDevice::FreeStaging(uint8_t* memory) {
  if (memory != nullptr) std::free(memory - kAlignment);
}

void HostDevice::CopyIn(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_in += bytes;
  if (!failed_ && bytes > 0) std::memcpy(to, from, bytes);
}

void HostDevice::CopyOut(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_out += bytes;
  if (!failed_ && bytes > 0) std::memcpy(to, from, bytes);
}

void HostDevice::CopyWithin(void* to, const void* from, uint64_t bytes) {
  if (!failed_ && bytes > 0) std::memcpy(to, from, bytes);
}

void HostDevice::Clear(void* memory, uint64_t bytes) {
  if (!failed_ && bytes > 0) std::memset(memory, 0, bytes);
}

bool HostDevice::Launch() {
  failed_ = failed_ || counts_.launches >= options_.launches_before_fault;
  ++counts_.launches;
  return !failed_;
}

void HostDevice::Sort(const uint32_t* keys, uint32_t count, uint32_t bits, uint32_t* sorted,
                      uint32_t* order, uint8_t*) {
  if (!Launch()) return;
  const uint32_t mask = bits >= 32 ? ~0u : (1u << bits) - 1;
  std::iota(order, order + count, 0u);
  std::stable_sort(order, order + count,
                   [&](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
  for (uint32_t i = 0; i < count; ++i) sorted[i] = keys[order[i]];
}

template <typename Work>
void HostDevice::RunUnits(const Work& work) {
  const HostTeam<Work::kLanes> team;
  if (work.units() == 0 || !Launch()) return;
  for (uint32_t unit = 0; unit < work.units(); ++unit) DoUnit(team, work, Unit{unit, unit % 3});
}

void HostDevice::Run(const ReadWork& work) { RunUnits(work); }
void HostDevice::Run(const PoolWork& work) { RunUnits(work); }
void HostDevice::Run(const DecodeWork& work) { RunUnits(work); }
void HostDevice::Run(const BucketWork& work) { RunUnits(work); }
void HostDevice::Run(const InsertWork& work) { RunUnits(work); }
void HostDevice::Run(const TakeWork& work) { RunUnits(work); }
void HostDevice::Run(const ReleaseWork& work) { RunUnits(work); }
void HostDevice::Run(const PieceWork& work) { RunUnits(work); }

void HostDevice::RunSteps(OptimizerKind kind, const UpdateBatch& batch) {
  ForStepKind(kind, [&](auto of) {
    RunUnits(StepWork<decltype(of)::kKind>{batch});
    RunUnits(FinishWork<decltype(of)::kKind>{batch});
  });
}

Status HostDevice::Wait() {
  ++counts_.waits;
  if (!failed_) return {};
  return {Code::kFailed, "the emulated device failed at launch " +
                             std::to_string(options_.launches_before_fault) +
                             ", as it was told to; start the server anew"};
}

}  // namespace device
}  // namespace hotbed
