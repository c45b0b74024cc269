// One kernel for all works: each team does a unit, and then those that are left.
#ifndef HOTBED_DEVICE_CUDA_LAUNCH_CUH_
#define HOTBED_DEVICE_CUDA_LAUNCH_CUH_

#include <algorithm>

#include "device/batch.h"
#include "device/cuda/launch.h"
#include "device/cuda/warp_team.cuh"
#include "device/move_work.h"
#include "device/read_work.h"
#include "device/step_work.h"

namespace hotbed {
namespace device {

constexpr uint32_t kBlockThreads = 256;

// Blocks that a multiprocessor should hold at once, by which the compiler divides its registers:
// the more rows are in flight, the less memory latency costs. 1: no limit on registers.
template <typename Work>
constexpr uint32_t kBlocksHeld = 1;
template <>
constexpr uint32_t kBlocksHeld<ReadWork> = 4;
template <>
constexpr uint32_t kBlocksHeld<InsertWork> = 4;
template <>
constexpr uint32_t kBlocksHeld<ExchangeWork> = 4;
template <>
constexpr uint32_t kBlocksHeld<PoolWork> = 3;
template <>
constexpr uint32_t kBlocksHeld<SumWork> = 3;
template <OptimizerKind kKind>
constexpr uint32_t kBlocksHeld<StepWork<kKind, StepWay::kBare>> = TraitsOf(kKind).vectors == 0 ? 4
                                                                                               : 3;
template <OptimizerKind kKind>
constexpr uint32_t kBlocksHeld<StepWork<kKind, StepWay::kPlain>> = 3;
template <OptimizerKind kKind>
constexpr uint32_t kBlocksHeld<StepWork<kKind, StepWay::kOptions>> = 2;
template <>
constexpr uint32_t kBlocksHeld<AnyStepWork> = 2;

// Whether a launch has only as many blocks as the multiprocessors hold at once, each of which takes
// unit after unit. Measured: 1.05 times the rate for pooled rows, 0.97 to 0.99 for other works,
// whose units differ more, so that a multiprocessor without a block takes the next one.
template <typename Work>
constexpr bool kStays = false;
template <>
constexpr bool kStays<PoolWork> = true;

template <typename Work>
__global__ void __launch_bounds__(kBlockThreads, kBlocksHeld<Work>)
    RunUnits(const __grid_constant__ Work work, uint32_t units) {
  const WarpTeam<Work::kLanes> team;
  const uint32_t worker = (blockIdx.x * kBlockThreads + threadIdx.x) / Work::kLanes;
  const uint32_t workers = gridDim.x * kBlockThreads / Work::kLanes;
  for (uint32_t unit = worker; unit < units; unit += workers) {
    DoUnit(team, work, Unit{unit});
  }
}

// The blocks that a multiprocessor holds at once. Depends on the kernel's registers; the same for
// all devices that run the same code.
template <typename Kernel>
uint32_t BlocksHeldBy(Kernel kernel) {
  static const uint32_t held = [kernel]() {
    int blocks = 0;
    const cudaError_t error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kBlockThreads, 0);
    if (error != cudaSuccess) cudaGetLastError();  // clears the error: it is not the launch's
    return static_cast<uint32_t>(error == cudaSuccess && blocks > 0 ? blocks : 1);
  }();
  return held;
}

template <typename Work>
cudaError_t LaunchUnits(const Work& work, uint32_t processors, cudaStream_t stream) {
  const uint32_t units = work.units();
  if (units == 0) return cudaSuccess;
  constexpr uint32_t kTeams = kBlockThreads / Work::kLanes;
  const uint32_t all = (units + kTeams - 1) / kTeams;
  const uint32_t blocks =
      kStays<Work> ? std::min(all, processors * BlocksHeldBy(RunUnits<Work>)) : all;
  RunUnits<Work><<<blocks, kBlockThreads, 0, stream>>>(work, units);
  return cudaGetLastError();
}

// Compiles the kernel of a work in this file, so that files of kernels are compiled side by side.
#define HOTBED_KERNEL(...) \
  template cudaError_t LaunchUnits(const __VA_ARGS__& work, uint32_t processors, cudaStream_t)

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_LAUNCH_CUH_
