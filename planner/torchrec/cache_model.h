// The figures by which a proposer gives tables other caches. Plain values; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_CACHE_MODEL_H_
#define HOTBED_PLANNER_TORCHREC_CACHE_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/sharding_option.h"

namespace hotbed::torchrec {

struct TableCache {
  double priority = 0;  // cacheability x lookups
  double ratio = 0;     // cache_load_factor, 0 where not given
};

struct CacheModel {
  std::vector<TableCache> tables;  // one for each table
  // `option` of a table with this kernel and this share of its rows cached; absent: no cache.
  std::function<ShardingOption(uint32_t table, const ShardingOption& option, Kernel kernel,
                               std::optional<double> ratio)>
      estimate;
};

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_CACHE_MODEL_H_
