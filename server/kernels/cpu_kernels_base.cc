#define HOTBED_ISA isa_base
#include "server/kernels/apply_kernel.h"
#include "server/kernels/nearness_kernels.h"
#include "server/kernels/pool_kernels.h"
#include "server/kernels/read_kernels.h"
#include "server/kernels/write_kernels.h"

namespace hotbed {

extern const CpuKernelSet kCpuKernels_base;
const CpuKernelSet kCpuKernels_base = {
    "base",     RunProbe,    RunGather,    RunGatherPooled, RunApply, RunInsert,
    RunEvict,   RunCollect,  RunReindex,   RunAge,          RunMove,  EncodeRow,
    FirstValue, RunPoolRows, EncodePooled, RunRankRows,
};

}  // namespace hotbed
