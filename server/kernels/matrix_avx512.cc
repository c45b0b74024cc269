#define HOTBED_ISA isa_avx512
#include "server/kernels/matrix_body.h"

namespace hotbed {

extern const MatrixKernelSet kMatrixKernels_avx512;
const MatrixKernelSet kMatrixKernels_avx512 = {
    "avx512", RunMultiply, RunRaiseMaxima, RunAddExponentials, RunToGradients,
};

}  // namespace hotbed
