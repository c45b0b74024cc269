// Compiled for x86-64-v4 with AVX512-VNNI (serving/CMakeLists.txt).
#define HOTBED_ISA isa_avx512
#include "serving/rows/row_coder_body.h"

namespace hotbed {

extern const RowLoops kAvx512RowLoops;
const RowLoops kAvx512RowLoops = RowLoopsOf::Named("avx512-vnni");

}  // namespace hotbed
