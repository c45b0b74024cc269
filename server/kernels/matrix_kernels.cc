#include "server/kernels/matrix_kernels.h"

#include <cstring>
#include <initializer_list>

#include "server/kernels/cpu_kernels.h"

namespace hotbed {

extern const MatrixKernelSet kMatrixKernels_base;
#if defined(HOTBED_HAVE_X86_KERNELS)
extern const MatrixKernelSet kMatrixKernels_avx2;
extern const MatrixKernelSet kMatrixKernels_avx512;
#endif

const MatrixKernelSet& MatrixKernelsOf(const char* name) {
#if defined(HOTBED_HAVE_X86_KERNELS)
  for (const MatrixKernelSet* set : {&kMatrixKernels_avx512, &kMatrixKernels_avx2}) {
    if (std::strcmp(set->name, name) == 0) return *set;
  }
#endif
  return kMatrixKernels_base;
}

const MatrixKernelSet& MatrixKernels() { return MatrixKernelsOf(CpuKernels().name); }

}  // namespace hotbed
