// One device, as the rows' owner sees it: memory, copies, and works (kernels) that run in the order
// of the calls. Two kinds: a GPU (device/cuda/cuda_device.h) and one emulated on the calling thread
// (device/host_device.h), which runs the same algorithms.
//
// Copies and works are queued; Wait() ends when all are done and returns whether any failed. A
// failure is permanent: the device's memory is lost, works and copies are dropped, and every Wait()
// returns the first error. When Wait() ends, also after a failure, the device no longer reads or
// writes any host memory it was given. Confined to one executor, except PinStaging and
// UnpinStaging.
//
// Three queues: one for works and the copies between them, one for copies in and one for copies
// out, so that copies proceed while works run. Each queue keeps its own order; between queues the
// only order is the one that Order() asks for.
#ifndef HOTBED_DEVICE_DEVICE_H_
#define HOTBED_DEVICE_DEVICE_H_

#include <cstdint>
#include <string>

#include "device/move_work.h"
#include "device/read_work.h"
#include "device/step_work.h"

namespace hotbed {
namespace device {

enum class Code : uint8_t {
  kOk = 0,
  kNoDevice = 1,  // no driver, or no usable device
  kNoMemory = 2,  // the device, or its budget, has less memory
  kFailed = 3,    // an error while running; permanent
  kTooLarge = 4,  // beyond a limit of this library
  kUnknown = 5,   // no such table
};

struct Status {
  Code code = Code::kOk;
  std::string message;  // names the thing, the value, the limit and the next step

  bool ok() const { return code == Code::kOk; }
};

enum class Queue : uint8_t { kWork = 0, kIn = 1, kOut = 2 };
constexpr uint32_t kQueues = 3;

constexpr uint64_t kPinUnit = 4096;  // bytes: a page

// Marks that may be waited for at the same time.
constexpr uint32_t kMarksMax = 8;

// Kernels of a sort by `bits` bits: a histogram, its scan, and a pass per 8 bits. CUB sorts many
// keys like that, few keys with one kernel.
constexpr uint32_t SortLaunches(uint32_t bits) { return 2 + (bits + 7) / 8; }

// Operations of the device since it was opened; for tests and metrics.
struct DeviceCounts {
  uint64_t launches = 0;  // kernels, including those of sorts (SortLaunches)
  uint64_t waits = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t copies_out = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string Describe() const = 0;
  // Device memory that Allocate could still return now.
  virtual uint64_t free_bytes() = 0;

  // Device memory, aligned to 256 bytes and zeroed in the queue of works.
  virtual Status Allocate(uint64_t bytes, uint8_t** memory) = 0;
  virtual void Free(uint8_t* memory) = 0;
  // Host memory that copies use directly, without an intermediate memcpy.
  virtual Status AllocateStaging(uint64_t bytes, uint8_t** memory) = 0;
  virtual void FreeStaging(uint8_t* memory) = 0;
  // Turns existing host memory into staging memory, all of it resident. `memory` and `bytes` are
  // multiples of kPinUnit, and no part of it is staging memory already. kNoMemory: no more may be
  // locked. UnpinStaging must undo it before the memory or the device is freed, with no copy from
  // or to the memory in flight. Both run on any thread, concurrently with other calls.
  virtual Status PinStaging(uint8_t* memory, uint64_t bytes) = 0;
  virtual void UnpinStaging(uint8_t* memory) = 0;

  // In the queue of works. Host memory stays valid until Wait().
  virtual void CopyIn(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyOut(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, uint64_t bytes) = 0;
  virtual void Clear(void* memory, uint64_t bytes) = 0;

  // In queues of their own; concurrent with works only if the host's side is staging memory, all of
  // it allocated or pinned by one call.
  virtual void CopyInAside(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyOutAside(void* to, const void* from, uint64_t bytes) = 0;
  // Operations queued in `later` from now on begin after all operations queued in `earlier` so far.
  virtual void Order(Queue later, Queue earlier) = 0;
  // A mark after all operations queued so far; at most kMarksMax marks may be outstanding.
  virtual uint64_t Mark(Queue queue) = 0;
  // Ends when everything before the mark is done; otherwise as Wait(), and counted as one.
  virtual Status WaitFor(uint64_t mark) = 0;

  // Stable, by the lowest `bits` bits; order[i] is the index sorted[i] had. `counted`: 0, 1, 2, ...
  // `scratch`: at least SortScratchBytes(count) bytes.
  virtual uint64_t SortScratchBytes(uint32_t count) = 0;
  virtual void Sort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                    uint32_t* sorted, uint32_t* order, uint8_t* scratch) = 0;

  virtual void Run(const ReadWork& work) = 0;
  virtual void Run(const LeftWork& work) = 0;
  virtual void Run(const PoolWork& work) = 0;
  virtual void Run(const BucketWork& work) = 0;
  virtual void Run(const InsertWork& work) = 0;
  virtual void Run(const ExchangeWork& work) = 0;
  virtual void Run(const FirstValueWork& work) = 0;
  virtual void Run(const TakeWork& work) = 0;
  virtual void Run(const ReleaseWork& work) = 0;
  virtual void Run(const SumWork& work) = 0;
  // StepWork of one kind, as StepKind names it; `way` is not kAny.
  virtual void RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) = 0;
  virtual void Run(const AnyStepWork& work) = 0;

  // Waits for all queues.
  virtual Status Wait() = 0;
  virtual DeviceCounts counts() const = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_DEVICE_H_
