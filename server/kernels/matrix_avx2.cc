#define HOTBED_ISA isa_avx2
#include "server/kernels/matrix_body.h"

namespace hotbed {

extern const MatrixKernelSet kMatrixKernels_avx2;
const MatrixKernelSet kMatrixKernels_avx2 = {
    "avx2", RunMultiply, RunRaiseMaxima, RunAddExponentials, RunToGradients,
};

}  // namespace hotbed
