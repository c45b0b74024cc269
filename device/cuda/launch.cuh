// One kernel for all works: teams take unit after unit.
#ifndef HOTBED_DEVICE_CUDA_LAUNCH_CUH_
#define HOTBED_DEVICE_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "device/batch.h"
#include "device/cuda/warp_team.cuh"
#include "device/move_work.h"
#include "device/read_work.h"
#include "device/update_work.h"

namespace hotbed {
namespace device {

constexpr uint32_t kBlockThreads = 256;
constexpr uint32_t kBlocksOfProcessor = 8;  // 2,048 threads: all that a multiprocessor holds

template <typename Work>
__global__ void __launch_bounds__(kBlockThreads)
    RunUnits(const __grid_constant__ Work work, uint32_t units) {
  const WarpTeam<Work::kLanes> team;
  const uint32_t worker = (blockIdx.x * kBlockThreads + threadIdx.x) / Work::kLanes;
  const uint32_t workers = gridDim.x * kBlockThreads / Work::kLanes;
  for (uint32_t unit = worker; unit < units; unit += workers) {
    DoUnit(team, work, Unit{unit, worker});
  }
}

// At most `blocks_max` blocks. Nothing is launched for no units.
template <typename Work>
cudaError_t LaunchUnits(const Work& work, uint32_t blocks_max, cudaStream_t stream) {
  const uint32_t units = work.units();
  if (units == 0) return cudaSuccess;
  constexpr uint32_t kTeams = kBlockThreads / Work::kLanes;
  const uint32_t blocks = std::min((units + kTeams - 1) / kTeams, blocks_max);
  RunUnits<Work><<<blocks, kBlockThreads, 0, stream>>>(work, units);
  return cudaGetLastError();
}

// One a file of kernels, so that each is compiled by itself.
cudaError_t LaunchRead(const ReadWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchPool(const PoolWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchDecode(const DecodeWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchBuckets(const BucketWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchInsert(const InsertWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchTake(const TakeWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchRelease(const ReleaseWork& work, uint32_t blocks_max, cudaStream_t stream);
cudaError_t LaunchPieces(const PieceWork& work, uint32_t blocks_max, cudaStream_t stream);
// Of the elementwise kinds, and of those that need a sum over the row.
cudaError_t LaunchPlainSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t blocks_max,
                             cudaStream_t stream);
cudaError_t LaunchRowwiseSteps(OptimizerKind kind, const UpdateBatch& batch, uint32_t blocks_max,
                               cudaStream_t stream);

uint64_t SortBytes(uint32_t count);
cudaError_t LaunchSort(const uint32_t* keys, const uint32_t* counted, uint32_t count, uint32_t bits,
                       uint32_t* sorted, uint32_t* order, uint8_t* scratch, cudaStream_t stream);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_CUDA_LAUNCH_CUH_
