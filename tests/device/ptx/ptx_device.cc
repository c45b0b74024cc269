#include "tests/device/ptx/ptx_device.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <typeinfo>

#include "device/step_kinds.h"
#include "tests/device/ptx/work_arrays.h"

namespace hotbed {
namespace device {
namespace {

constexpr uint32_t kBlockThreads = 256;  // as in device/cuda/launch.cuh

template <typename Work>
std::string KernelOf() {
  char* const name = abi::__cxa_demangle(typeid(Work).name(), nullptr, nullptr, nullptr);
  std::string work = name != nullptr ? name : "";
  std::free(name);
  if (work.empty() || work.back() != '>') work += ">";
  return "RunUnits<" + work;
}

// The allow list. A slot's bits are read plainly while other teams, or another lane of the same,
// set some of them: `Visit` (device/buckets.h) counts to two, and two at once may count as one;
// FindSlot looks at kExists in a direct table, which no visit changes. Only in these bytes, one at
// a time, and only in ReadWork.
std::vector<AllowedReads> BitsOfRows(const Table* tables, const Segments& segments) {
  std::vector<uint32_t> numbers;
  for (uint32_t s = 0; s < segments.count; ++s) numbers.push_back(segments.at[s].table);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<AllowedReads> allowed;
  for (const uint32_t number : numbers) {
    const Table& table = tables[number];
    const uint64_t buckets = (uint64_t{table.slots} + kBucketSlots - 1) / kBucketSlots;
    AllowedReads bits;
    bits.begin = reinterpret_cast<uintptr_t>(table.buckets);
    bits.end = bits.begin + sizeof(Bucket) * buckets;
    bits.period = sizeof(Bucket);
    bits.from = kBucketSlots;
    allowed.push_back(bits);
  }
  return allowed;
}

}  // namespace

Status PtxDevice::Allocate(uint64_t bytes, uint8_t** memory) {
  if (!failure_.ok()) return failure_;
  const Status status = HostDevice::Allocate(bytes, memory);
  if (status.ok()) machine_.memory().Add(*memory, bytes);
  return status;
}

void PtxDevice::Free(uint8_t* memory) {
  machine_.memory().Remove(memory);
  HostDevice::Free(memory);
}

template <typename Work>
void PtxDevice::Launch(const Work& work, uint64_t rows, const PtxMemory& arrays,
                       const std::string& label, const std::vector<AllowedReads>& allowed) {
  const uint32_t units = work.units();
  if (units == 0) return;
  ++launches_;
  if (!failure_.ok()) return;
  const PtxKernel* const kernel = module_.Find(KernelOf<Work>());
  if (kernel == nullptr) {
    failure_ = {Code::kFailed, "no kernel, or several, named " + KernelOf<Work>() + " in the PTX"};
    return;
  }
  constexpr uint32_t kTeams = kBlockThreads / Work::kLanes;
  PtxGrid grid;
  grid.blocks = std::min((units + kTeams - 1) / kTeams, kBlocksMax);
  grid.block_threads = kBlockThreads;
  grid.arrays = &arrays;
  grid.rows = rows;
  grid.label = label;
  std::string error;
  if (machine_.Run(*kernel, grid, {{&work, sizeof(work)}, {&units, sizeof(units)}}, allowed,
                   &error)) {
    return;
  }
  failure_ = {Code::kFailed, Describe() + ": " + error};
}

void PtxDevice::Run(const ReadWork& work) {
  Launch(work, work.segments.ids, ArraysOf(work), work.rows != nullptr ? " with rows" : "",
         BitsOfRows(work.tables, work.segments));
}
void PtxDevice::Run(const LeftWork& work) { Launch(work, work.units(), ArraysOf(work)); }
void PtxDevice::Run(const PoolWork& work) { Launch(work, work.segments.ids, ArraysOf(work)); }
void PtxDevice::Run(const BucketWork& work) { Launch(work, work.batch.count, ArraysOf(work)); }
void PtxDevice::Run(const InsertWork& work) { Launch(work, work.batch.count, ArraysOf(work)); }
void PtxDevice::Run(const ExchangeWork& work) { Launch(work, work.batch.count, ArraysOf(work)); }
void PtxDevice::Run(const FirstValueWork& work) { Launch(work, work.units(), ArraysOf(work)); }
void PtxDevice::Run(const TakeWork& work) { Launch(work, work.count, ArraysOf(work)); }
void PtxDevice::Run(const ReleaseWork& work) { Launch(work, work.count, ArraysOf(work)); }
void PtxDevice::Run(const SumWork& work) {
  Launch(work, work.batch.segments.ids, ArraysOf(work.batch));
}

void PtxDevice::RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) {
  const uint64_t ids = batch.segments.ids;
  ForStepKind(kind, [&](auto of) {
    constexpr OptimizerKind kKind = decltype(of)::kKind;
    if (way == StepWay::kBare) {
      Launch(StepWork<kKind, StepWay::kBare>{batch}, ids, ArraysOf(batch));
    } else if (way == StepWay::kPlain) {
      Launch(StepWork<kKind, StepWay::kPlain>{batch}, ids, ArraysOf(batch));
    } else {
      Launch(StepWork<kKind, StepWay::kOptions>{batch}, ids, ArraysOf(batch));
    }
  });
}

void PtxDevice::Run(const AnyStepWork& work) {
  Launch(work, work.batch.segments.ids, ArraysOf(work.batch));
}

Status PtxDevice::WaitFor(uint64_t mark) {
  const Status status = HostDevice::WaitFor(mark);
  return failure_.ok() ? status : failure_;
}

Status PtxDevice::Wait() {
  const Status status = HostDevice::Wait();
  return failure_.ok() ? status : failure_;
}

DeviceCounts PtxDevice::counts() const {
  DeviceCounts counts = HostDevice::counts();
  counts.launches += launches_;
  return counts;
}

}  // namespace device
}  // namespace hotbed
