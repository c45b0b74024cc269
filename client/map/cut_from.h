// Where a shard comes from that was cut from another one.
#ifndef HOTBED_CLIENT_MAP_CUT_FROM_H_
#define HOTBED_CLIENT_MAP_CUT_FROM_H_

#include <cstdint>

#include "common/ids.h"

namespace hotbed {

struct CutFrom {
  uint32_t shard = 0;  // by index; its own index: it was not cut while this client looked
  Epoch epoch = 0;     // in which that one was known last, as a whole
  friend bool operator==(const CutFrom&, const CutFrom&) = default;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_CUT_FROM_H_
