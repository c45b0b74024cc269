// A device that runs the compiled kernels, as nvcc made them, in the interpreter of ptx_machine.h.
// Memory, copies and sorts are those of the emulated device; kernels are launched as
// device/cuda/launch.cuh does, on a small GPU: few blocks, so that teams take several units.
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_DEVICE_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "tests/device/ptx/ptx_machine.h"

namespace hotbed {
namespace device {

// The first error of a kernel is for good, as on a GPU, and tells what PtxMachine found.
class PtxDevice : public HostDevice {
 public:
  // `module` outlives the device.
  PtxDevice(const PtxModule& module, const PtxMachineOptions& options)
      : module_(module), machine_(options) {}

  std::string Describe() const override { return "interpreted PTX"; }
  Status Allocate(uint64_t bytes, uint8_t** memory) override;
  void Free(uint8_t* memory) override;
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
  Status WaitFor(uint64_t mark) override;
  Status Wait() override;
  DeviceCounts counts() const override;

  const PtxProfile& profile() const { return machine_.profile(); }

 private:
  // As on a GPU with two multiprocessors.
  static constexpr uint32_t kBlocksMax = 2 * 4;

  // `rows`: what the work is about, for the profile.
  template <typename Work>
  void Launch(const Work& work, uint64_t rows, const PtxMemory& arrays,
              const std::string& label = "", const std::vector<AllowedReads>& allowed = {});

  const PtxModule& module_;
  PtxMachine machine_;
  Status failure_;
  uint64_t launches_ = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_DEVICE_H_
