#include "device/host_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "device/step_kinds.h"
#include "device/team.h"
#include "row_math/position.h"

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
  RunAll();
  if (memory == nullptr) return;
  bytes_ -= BytesOf(memory);
  std::free(memory - kAlignment);
}

Status HostDevice::AllocateStaging(uint64_t bytes, uint8_t** memory) {
  *memory = AllocateZeroed(bytes);
  if (*memory != nullptr) {
    const std::lock_guard<std::mutex> lock(staging_mu_);
    staging_[*memory] = bytes;
    return {};
  }
  return {Code::kNoMemory, "host memory: " + std::to_string(bytes) + " bytes wanted for staging"};
}

void HostDevice::FreeStaging(uint8_t* memory) {
  RunAll();
  if (memory == nullptr) return;
  const std::lock_guard<std::mutex> lock(staging_mu_);
  staging_.erase(memory);
  std::free(memory - kAlignment);
}

Status HostDevice::PinStaging(uint8_t* memory, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(staging_mu_);
  const std::string asked = "pinned host memory: " + std::to_string(bytes) + " bytes";
  if (bytes == 0 || bytes % kPinUnit != 0 || reinterpret_cast<uintptr_t>(memory) % kPinUnit != 0) {
    return {Code::kTooLarge, asked + " that are no whole pages of " + std::to_string(kPinUnit)};
  }
  const auto next = staging_.lower_bound(memory + bytes);
  if (next != staging_.begin()) {
    const auto& [begin, size] = *std::prev(next);
    if (begin + size > memory) return {Code::kTooLarge, asked + ", some of them pinned already"};
  }
  if (bytes > options_.pinned_bytes_max - pinned_bytes_) {
    return {Code::kNoMemory, asked + " wanted beside " + std::to_string(pinned_bytes_) +
                                 ", allowed are " + std::to_string(options_.pinned_bytes_max)};
  }
  staging_[memory] = bytes;
  pinned_bytes_ += bytes;
  return {};
}

void HostDevice::UnpinStaging(uint8_t* memory) {
  const std::lock_guard<std::mutex> lock(staging_mu_);
  const auto found = staging_.find(memory);
  if (found == staging_.end()) return;
  pinned_bytes_ -= found->second;
  staging_.erase(found);
}

bool HostDevice::IsStaging(const void* memory, uint64_t bytes) const {
  const std::lock_guard<std::mutex> lock(staging_mu_);
  const auto* const at = static_cast<const uint8_t*>(memory);
  const auto next = staging_.upper_bound(at);
  if (next == staging_.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return at + bytes <= begin + size;
}

// --- queues

void HostDevice::Give(Queue queue, std::function<void()> run) {
  if (failed_) return;
  if (options_.order_seed == 0) return run();
  TaskQueue& to = queues_[static_cast<uint32_t>(queue)];
  to.tasks.push_back({std::move(run), 0, 0});
  ++to.given;
}

void HostDevice::Order(Queue later, Queue earlier) {
  if (options_.order_seed == 0) return;
  TaskQueue& to = queues_[static_cast<uint32_t>(later)];
  const auto from = static_cast<uint32_t>(earlier);
  to.tasks.push_back({nullptr, from, queues_[from].given});
  ++to.given;
}

uint64_t HostDevice::Mark(Queue queue) {
  const auto number = static_cast<uint32_t>(queue);
  return queues_[number].given * kQueues + number;
}

bool HostDevice::MayRun(const TaskQueue& queue) const {
  if (queue.tasks.empty()) return false;
  const Task& task = queue.tasks.front();
  return task.run != nullptr || queues_[task.queue].done >= task.count;
}

// Some queue can always continue: a task waits only for earlier tasks. One queue stays the
// favourite for a while, so that others fall far behind.
void HostDevice::RunUntil(uint32_t queue, uint64_t count) {
  while (queues_[queue].done < count) {
    random_ = Mix64(random_ + 1);
    const uint32_t favourite = static_cast<uint32_t>(random_ >> 40) % kQueues;
    for (uint32_t turns = 1 + random_ % 8; turns > 0 && MayRun(queues_[favourite]); --turns) {
      TaskQueue& at = queues_[favourite];
      const Task task = std::move(at.tasks.front());
      at.tasks.pop_front();
      if (task.run != nullptr) task.run();
      ++at.done;
    }
  }
}

void HostDevice::RunAll() {
  for (uint32_t queue = 0; queue < kQueues; ++queue) RunUntil(queue, queues_[queue].given);
}

Status HostDevice::Failure() const {
  if (!failed_) return {};
  if (!misuse_.empty()) return {Code::kFailed, misuse_};
  return {Code::kFailed, "the emulated device failed at work " +
                             std::to_string(options_.works_before_fault) +
                             ", as it was told to; start the server again"};
}

Status HostDevice::WaitFor(uint64_t mark) {
  ++counts_.waits;
  RunUntil(mark % kQueues, mark / kQueues);
  return Failure();
}

Status HostDevice::Wait() {
  ++counts_.waits;
  RunAll();
  return Failure();
}

// --- copies and works

void HostDevice::Copy(Queue queue, void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) Give(queue, [=]() { std::memcpy(to, from, bytes); });
}

// Checked when the copy runs, which finds memory that is unpinned too early.
void HostDevice::CopyAside(Queue queue, void* to, const void* from, uint64_t bytes,
                           const void* host) {
  if (bytes == 0) return;
  Give(queue, [this, to, from, bytes, host]() {
    if (!options_.staging_only || IsStaging(host, bytes)) {
      std::memcpy(to, from, bytes);
      return;
    }
    failed_ = true;
    misuse_ = "the emulated device was given a copy of " + std::to_string(bytes) +
              " bytes beside works whose host side is not staging memory: use AllocateStaging or "
              "PinStaging";
  });
}

void HostDevice::CopyIn(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_in += bytes;
  Copy(Queue::kWork, to, from, bytes);
}

void HostDevice::CopyOut(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_out += bytes;
  counts_.copies_out += bytes > 0;
  Copy(Queue::kWork, to, from, bytes);
}

void HostDevice::CopyInAside(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_in += bytes;
  CopyAside(Queue::kIn, to, from, bytes, from);
}

void HostDevice::CopyOutAside(void* to, const void* from, uint64_t bytes) {
  counts_.bytes_out += bytes;
  counts_.copies_out += bytes > 0;
  CopyAside(Queue::kOut, to, from, bytes, to);
}

void HostDevice::CopyWithin(void* to, const void* from, uint64_t bytes) {
  Copy(Queue::kWork, to, from, bytes);
}

void HostDevice::Clear(void* memory, uint64_t bytes) {
  if (bytes > 0) Give(Queue::kWork, [=]() { std::memset(memory, 0, bytes); });
}

bool HostDevice::Launch(uint32_t launches) {
  failed_ = failed_ || works_ >= options_.works_before_fault;
  ++works_;
  counts_.launches += launches;
  return !failed_;
}

void HostDevice::Sort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                      uint32_t* sorted, uint32_t* order, uint8_t*) {
  if (count == 0 || !Launch(SortLaunches(bits))) return;
  Give(Queue::kWork, [=]() {
    const uint32_t mask = bits >= 32 ? ~0u : (1u << bits) - 1;
    std::copy_n(counted, count, order);
    std::stable_sort(order, order + count,
                     [&](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (uint32_t i = 0; i < count; ++i) sorted[i] = keys[order[i]];
  });
}

template <typename Work>
void HostDevice::RunUnits(const Work& work) {
  if (work.units() == 0 || !Launch(1)) return;
  Give(Queue::kWork, [work]() {
    const HostTeam<Work::kLanes> team;
    for (uint32_t unit = 0; unit < work.units(); ++unit) DoUnit(team, work, Unit{unit});
  });
}

void HostDevice::Run(const ReadWork& work) { RunUnits(work); }
void HostDevice::Run(const LeftWork& work) { RunUnits(work); }
void HostDevice::Run(const PoolWork& work) { RunUnits(work); }
void HostDevice::Run(const BucketWork& work) { RunUnits(work); }
void HostDevice::Run(const InsertWork& work) { RunUnits(work); }
void HostDevice::Run(const ExchangeWork& work) { RunUnits(work); }
void HostDevice::Run(const FirstValueWork& work) { RunUnits(work); }
void HostDevice::Run(const TakeWork& work) { RunUnits(work); }
void HostDevice::Run(const ReleaseWork& work) { RunUnits(work); }
void HostDevice::Run(const SumWork& work) { RunUnits(work); }

void HostDevice::Run(const AnyStepWork& work) { RunUnits(work); }

void HostDevice::RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) {
  ForStepKind(kind, [&](auto of) {
    constexpr OptimizerKind kKind = decltype(of)::kKind;
    if (way == StepWay::kBare) return RunUnits(StepWork<kKind, StepWay::kBare>{batch});
    if (way == StepWay::kPlain) return RunUnits(StepWork<kKind, StepWay::kPlain>{batch});
    RunUnits(StepWork<kKind, StepWay::kOptions>{batch});
  });
}

}  // namespace device
}  // namespace hotbed
