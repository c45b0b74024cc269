// Runs kernels of PTX on the calling thread, lane by lane, as a GPU may run them: each lane has its
// own place in the code, lanes at the same place run together, and wait for each other only where
// the code says so. The machine grants nothing that PTX does not promise: a kernel that relies on
// more fails with an error that names the kernel, the PTX line, the lane and the address:
//
//   an access outside of the device's memory, or not at a multiple of its size
//   a value used that was never written
//   lanes that wait for lanes which do not come, or name none of themselves
//   accesses that race (race_check.h)
#ifndef HOTBED_TESTS_DEVICE_PTX_PTX_MACHINE_H_
#define HOTBED_TESTS_DEVICE_PTX_PTX_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/device/ptx/ptx_module.h"
#include "tests/device/ptx/ptx_warp.h"

namespace hotbed {
namespace device {

struct PtxMachineOptions {
  // 0: of a warp the lanes at the smallest address go first, and warps one after the other. Else
  // lanes and warps in a random order, which breaks what relies on lanes in step.
  uint64_t order_seed = 0;
  bool check_races = true;
  bool profile = false;
  uint64_t steps_max = 1ull << 32;  // of a launch; then it is taken for a loop without end
};

struct PtxArgument {
  const void* bytes;
  size_t size;
};

struct PtxGrid {
  uint32_t blocks = 1;
  uint32_t block_threads = 32;  // a multiple of 32
  // What the launch may touch of the device's memory; null: all of it.
  const PtxMemory* arrays = nullptr;
  // For the profile alone.
  uint64_t rows = 1;
  std::string label;  // behind the kernel's name
};

class PtxMachine {
 public:
  explicit PtxMachine(const PtxMachineOptions& options) : options_(options) {}

  PtxMemory& memory() { return memory_; }
  const PtxProfile& profile() const { return profile_; }
  // To the end. False with the first error, or with all races.
  bool Run(const PtxKernel& kernel, const PtxGrid& grid, const std::vector<PtxArgument>& arguments,
           const std::vector<AllowedReads>& allowed, std::string* error);

 private:
  static constexpr uint32_t kWarpsAtOnce = 6;  // in a random order

  bool Prepare(const PtxKernel& kernel, const PtxGrid& grid,
               const std::vector<PtxArgument>& arguments, PtxLaunch* launch) const;
  PtxWarp* WarpOf(const PtxKernel& kernel, uint32_t place);
  void RunInTurn(PtxLaunch* launch, uint32_t warps);
  void RunMixed(PtxLaunch* launch, uint32_t warps);

  const PtxMachineOptions options_;
  PtxMemory memory_;
  RaceCheck races_;
  PtxProfile profile_;
  uint64_t launches_ = 0;
  // Registers are many, so they are kept from launch to launch.
  std::unordered_map<const PtxKernel*, std::vector<std::unique_ptr<PtxWarp>>> warps_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_PTX_MACHINE_H_
