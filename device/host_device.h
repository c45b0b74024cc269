// A device emulated on the calling thread: its memory is on the heap, its works run at once, unit
// after unit, with the teams of device/team.h. For tests, and to define what a GPU must compute.
//
// Options make it fail as a GPU would: allocations beyond a limit, or everything after a number of
// works. An option makes it fail where a GPU would be slow: a copy aside whose host side is not
// staging memory when the copy runs. Another makes it do nothing until it is waited for, and then
// run the queues in a random order that keeps only what Order() asked for: code that relies on more
// order gives wrong rows.
#ifndef HOTBED_DEVICE_HOST_DEVICE_H_
#define HOTBED_DEVICE_HOST_DEVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "device/device.h"

namespace hotbed {
namespace device {

struct HostDeviceOptions {
  uint64_t bytes_max = ~0ull;           // of all allocations together
  uint64_t works_before_fault = ~0ull;  // a sort counts as one; then the device fails
  uint64_t order_seed = 0;              // of the queues' random order; 0: run at once
  uint64_t pinned_bytes_max = ~0ull;    // of all PinStaging together
  bool staging_only = false;            // fail copies aside from or to other memory
};

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options = {})
      : options_(options), random_(options.order_seed) {}

  std::string Describe() const override { return "emulated on the host"; }
  uint64_t free_bytes() override { return options_.bytes_max - bytes_; }
  Status Allocate(uint64_t bytes, uint8_t** memory) override;
  void Free(uint8_t* memory) override;
  Status AllocateStaging(uint64_t bytes, uint8_t** memory) override;
  void FreeStaging(uint8_t* memory) override;
  Status PinStaging(uint8_t* memory, uint64_t bytes) override;
  void UnpinStaging(uint8_t* memory) override;
  void CopyIn(void* to, const void* from, uint64_t bytes) override;
  void CopyOut(void* to, const void* from, uint64_t bytes) override;
  void CopyWithin(void* to, const void* from, uint64_t bytes) override;
  void Clear(void* memory, uint64_t bytes) override;
  void CopyInAside(void* to, const void* from, uint64_t bytes) override;
  void CopyOutAside(void* to, const void* from, uint64_t bytes) override;
  void Order(Queue later, Queue earlier) override;
  uint64_t Mark(Queue queue) override;
  Status WaitFor(uint64_t mark) override;
  uint64_t SortScratchBytes(uint32_t) override { return 0; }
  void Sort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
            uint32_t* sorted, uint32_t* order, uint8_t* scratch) override;
  void Run(const ReadWork& work) override;
  void Run(const LeftWork& work) override;
  void Run(const PoolWork& work) override;
  void Run(const BucketWork& work) override;
  void Run(const InsertWork& work) override;
  void Run(const ExchangeWork& work) override;
  void Run(const FirstValueWork& work) override;
  void Run(const TakeWork& work) override;
  void Run(const ReleaseWork& work) override;
  void Run(const SumWork& work) override;
  void RunSteps(OptimizerKind kind, StepWay way, const UpdateBatch& batch) override;
  void Run(const AnyStepWork& work) override;
  Status Wait() override;
  DeviceCounts counts() const override { return counts_; }

 private:
  struct Task {
    std::function<void()> run;  // empty: waits until `queue` has done `count`
    uint32_t queue;
    uint64_t count;
  };
  struct TaskQueue {
    std::deque<Task> tasks;
    uint64_t given = 0;
    uint64_t done = 0;
  };

  bool Launch(uint32_t launches);
  template <typename Work>
  void RunUnits(const Work& work);
  void Copy(Queue queue, void* to, const void* from, uint64_t bytes);
  void CopyAside(Queue queue, void* to, const void* from, uint64_t bytes, const void* host);
  bool IsStaging(const void* memory, uint64_t bytes) const;
  void Give(Queue queue, std::function<void()> run);
  bool MayRun(const TaskQueue& queue) const;
  void RunUntil(uint32_t queue, uint64_t count);
  void RunAll();
  Status Failure() const;

  const HostDeviceOptions options_;
  uint64_t random_;
  TaskQueue queues_[kQueues];
  uint64_t works_ = 0;
  uint64_t bytes_ = 0;
  bool failed_ = false;
  std::string misuse_;  // why it failed, unless an option asked for it
  DeviceCounts counts_;
  mutable std::mutex staging_mu_;               // guards staging_ and pinned_bytes_
  std::map<const uint8_t*, uint64_t> staging_;  // bytes
  uint64_t pinned_bytes_ = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_HOST_DEVICE_H_
