#define HOTBED_ISA isa_base
#include "server/kernels/matrix_body.h"

namespace hotbed {

extern const MatrixKernelSet kMatrixKernels_base;
const MatrixKernelSet kMatrixKernels_base = {
    "base", RunMultiply, RunRaiseMaxima, RunAddExponentials, RunToGradients,
};

}  // namespace hotbed
