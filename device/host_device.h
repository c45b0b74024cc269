// A device emulated on the calling thread: its memory is the heap's, its works run at once, unit
// after unit, with the teams of device/team.h. For tests, and to know what a GPU must compute.
//
// It can be told to fail, as a GPU would: allocations beyond a limit, or everything after a number
// of launches.
#ifndef HOTBED_DEVICE_HOST_DEVICE_H_
#define HOTBED_DEVICE_HOST_DEVICE_H_

#include <cstdint>
#include <string>

#include "device/device.h"

namespace hotbed {
namespace device {

struct HostDeviceOptions {
  uint64_t bytes_max = ~0ull;              // of all allocations together
  uint64_t launches_before_fault = ~0ull;  // then the device fails for good
};

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options = {}) : options_(options) {}

  std::string Describe() const override { return "emulated on the host"; }
  uint64_t free_bytes() override { return options_.bytes_max - bytes_; }
  Status Allocate(uint64_t bytes, uint8_t** memory) override;
  void Free(uint8_t* memory) override;
  Status AllocateStaging(uint64_t bytes, uint8_t** memory) override;
  void FreeStaging(uint8_t* memory) override;
  void CopyIn(void* to, const void* from, uint64_t bytes) override;
  void CopyOut(void* to, const void* from, uint64_t bytes) override;
  void CopyWithin(void* to, const void* from, uint64_t bytes) override;
  void Clear(void* memory, uint64_t bytes) override;
  uint64_t SortScratchBytes(uint32_t) override { return 0; }
  void Sort(const uint32_t* keys, uint32_t count, uint32_t bits, uint32_t* sorted, uint32_t* order,
            uint8_t* scratch) override;
  void Run(const ReadWork& work) override;
  void Run(const PoolWork& work) override;
  void Run(const DecodeWork& work) override;
  void Run(const BucketWork& work) override;
  void Run(const InsertWork& work) override;
  void Run(const TakeWork& work) override;
  void Run(const ReleaseWork& work) override;
  void Run(const PieceWork& work) override;
  void RunSteps(OptimizerKind kind, const UpdateBatch& batch) override;
  // More than one, so that a row's room is not always the same.
  uint32_t StepWorkers(uint32_t) const override { return 3; }
  Status Wait() override;
  DeviceCounts counts() const override { return counts_; }

 private:
  bool Launch();
  template <typename Work>
  void RunUnits(const Work& work);

  const HostDeviceOptions options_;
  uint64_t bytes_ = 0;
  bool failed_ = false;
  DeviceCounts counts_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_HOST_DEVICE_H_
