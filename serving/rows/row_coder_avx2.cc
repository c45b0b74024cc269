// Compiled for x86-64-v3 (serving/CMakeLists.txt).
#define HOTBED_ISA isa_avx2
#include "serving/rows/row_coder_body.h"

namespace hotbed {

extern const RowLoops kAvx2RowLoops;
const RowLoops kAvx2RowLoops = RowLoopsOf::Named("avx2");

}  // namespace hotbed
