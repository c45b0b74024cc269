// The arrays that a work names, each with its exact size: what its kernel may touch. The rows'
// owner takes its memory at once, so an access that strays from one array into the next is still
// inside the device's memory.
#ifndef HOTBED_TESTS_DEVICE_PTX_WORK_ARRAYS_H_
#define HOTBED_TESTS_DEVICE_PTX_WORK_ARRAYS_H_

#include "device/move_work.h"
#include "device/read_work.h"
#include "device/update_work.h"
#include "tests/device/ptx/ptx_warp.h"

namespace hotbed {
namespace device {

PtxMemory ArraysOf(const ReadWork& work);
PtxMemory ArraysOf(const LeftWork& work);
PtxMemory ArraysOf(const PoolWork& work);
PtxMemory ArraysOf(const BucketWork& work);
PtxMemory ArraysOf(const InsertWork& work);
PtxMemory ArraysOf(const ExchangeWork& work);
PtxMemory ArraysOf(const FirstValueWork& work);
PtxMemory ArraysOf(const TakeWork& work);
PtxMemory ArraysOf(const ReleaseWork& work);
// `workers`: as many sums as the device has asked for.
PtxMemory ArraysOf(const UpdateBatch& batch);

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_WORK_ARRAYS_H_
