// One device, as the rows' owner sees it: memory, copies, works that run in the order in which they
// are given. Two kinds: a GPU (device/cuda/cuda_device.h) and one emulated on the calling thread
// (device/host_device.h), which runs the same algorithms.
//
// Copies and works are queued; Wait() ends when all are done, and says whether any failed. A device
// that has failed stays so: its memory means nothing any more, works and copies are dropped, and
// every Wait() tells the first error. When it ends, nothing of the device reads or writes what host
// memory it was given for, also if it failed. Confined to one executor, but for PinStaging and
// UnpinStaging.
//
// Three queues: works with the copies between them, and beside them one of copies in and one of
// copies out, so that these go on while works run. Each keeps its own order; between two of them
// there is none but what Order() asks for.
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
  kNoDevice = 1,  // no driver, or nothing that it could use
  kNoMemory = 2,  // the device, or its budget, has not as much
  kFailed = 3,    // an error while running, for good
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

// Points of queues that may be waited for at the same time.
constexpr uint32_t kMarksMax = 8;

// Kernels of a sort by `bits` bits: a histogram, its scan, and a pass for 8 bits. It is how CUB
// sorts many keys; few are one kernel.
constexpr uint32_t SortLaunches(uint32_t bits) { return 2 + (bits + 7) / 8; }

// What was asked of the device since it was opened; for tests and metrics.
struct DeviceCounts {
  uint64_t launches = 0;  // kernels, those of sorts too (SortLaunches)
  uint64_t waits = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t copies_out = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string Describe() const = 0;
  // Of device memory, as of now: what Allocate might still give.
  virtual uint64_t free_bytes() = 0;

  // Device memory, aligned to 256 bytes; zeroed in the queue of works.
  virtual Status Allocate(uint64_t bytes, uint8_t** memory) = 0;
  virtual void Free(uint8_t* memory) = 0;
  // Host memory from and to which copies need no copy of their own.
  virtual Status AllocateStaging(uint64_t bytes, uint8_t** memory) = 0;
  virtual void FreeStaging(uint8_t* memory) = 0;
  // Makes host memory that exists staging memory, all of it resident. `memory` and `bytes`:
  // multiples of kPinUnit, and no part of it is staging memory already. kNoMemory: no more may be
  // locked. Before it is freed, and before the device is, UnpinStaging takes that back; no copy
  // from or to it is under way then. Both on any thread, beside other calls.
  virtual Status PinStaging(uint8_t* memory, uint64_t bytes) = 0;
  virtual void UnpinStaging(uint8_t* memory) = 0;

  // In the queue of works. `from` and `to` of the host stay valid until Wait().
  virtual void CopyIn(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyOut(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyWithin(void* to, const void* from, uint64_t bytes) = 0;
  virtual void Clear(void* memory, uint64_t bytes) = 0;

  // In queues of their own; beside works only where the host's side is staging memory, all of it
  // allocated or pinned by one call.
  virtual void CopyInAside(void* to, const void* from, uint64_t bytes) = 0;
  virtual void CopyOutAside(void* to, const void* from, uint64_t bytes) = 0;
  // What `later` is given from now on begins after all that `earlier` was given until now.
  virtual void Order(Queue later, Queue earlier) = 0;
  // A point of a queue, behind all that it was given; at most kMarksMax that are not waited for.
  virtual uint64_t Mark(Queue queue) = 0;
  // Ends when all before the mark is done; as Wait() otherwise, and counted as one.
  virtual Status WaitFor(uint64_t mark) = 0;

  // Stable, by the lowest `bits` bits; order[i] is where sorted[i] stood. `counted`: 0, 1, 2, ...
  // `scratch`: as many bytes as for `count` or more.
  virtual uint64_t SortScratchBytes(uint32_t count) = 0;
  virtual void Sort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                    uint32_t* sorted, uint32_t* order, uint8_t* scratch) = 0;

  virtual void Run(const ReadWork& work) = 0;
  virtual void Run(const LeftWork& work) = 0;
  virtual void Run(const PoolWork& work) = 0;
  virtual void Run(const DecodeWork& work) = 0;
  virtual void Run(const BucketWork& work) = 0;
  virtual void Run(const InsertWork& work) = 0;
  virtual void Run(const FirstValueWork& work) = 0;
  virtual void Run(const TakeWork& work) = 0;
  virtual void Run(const ReleaseWork& work) = 0;
  virtual void Run(const SumWork& work) = 0;
  // StepWork of one kind, as StepKind names it; `way` is not kAny.
  virtual void RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) = 0;
  virtual void Run(const AnyStepWork& work) = 0;

  // For all queues.
  virtual Status Wait() = 0;
  virtual DeviceCounts counts() const = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_DEVICE_H_
