// Compiled with -mavx2: nothing here may run before BestRowSums has looked at the processor.
#include "client/rows/row_sums.h"

#if defined(__AVX2__)

#define HOTBED_ROW_SUMS_WIDTH 8
#include "client/rows/row_sums_loops.h"

namespace hotbed {
const RowSums* const internal::kAvx2RowSums = &kRowSums;
}  // namespace hotbed

#else

namespace hotbed {
const RowSums* const internal::kAvx2RowSums = nullptr;
}  // namespace hotbed

#endif
