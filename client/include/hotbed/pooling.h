// How the rows of a bag become one row (docs/tables.md, "Pooling").
#ifndef HOTBED_POOLING_H_
#define HOTBED_POOLING_H_

#include <cstdint>

namespace hotbed {

enum class Pooling : uint8_t { kSum = 0, kMean = 1, kMax = 2, kNone = 3 };

}  // namespace hotbed

#endif  // HOTBED_POOLING_H_
