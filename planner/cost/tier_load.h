// What lies on one server, and what its tiers make of it: which rows are hot, which spill. A plain
// value, thread-compatible.
//
// Heat: rows are put into 64 classes by the time that spilling costs per byte, each class a factor
// two wide. Memory takes whole classes from the hottest on; of the class in which it ends, each
// row has the same chance. That is what a good eviction policy converges to, and within a factor
// two of heat it doesn't tell rows apart: so a hit ratio is never overstated by the classes. Device
// memory is filled first, then host memory, then the spill.
//
// Time is in ticks: integers (problem.h says how long one is), so that what was added and taken off
// again leaves nothing behind and the order of changes has no influence.
#ifndef HOTBED_PLANNER_COST_TIER_LOAD_H_
#define HOTBED_PLANNER_COST_TIER_LOAD_H_

#include <array>
#include <cstdint>

#include "planner/model/planner_output.h"

namespace hotbed {

constexpr uint32_t kHeatClasses = 64;  // 0 the coldest

struct TierCapacity {
  uint64_t device = 0;
  uint64_t host = 0;
  uint64_t spill = 0;
  uint64_t Total() const;  // saturates
};

// Rows of about the same heat: what they weigh and what not being hot costs them a step.
struct HeatEntry {
  uint32_t heat = 0;  // class
  double bytes = 0;
  double host_extra = 0;   // ticks, when they are in host memory under a device
  double spill_extra = 0;  // ticks, when they are in the spill, beside host_extra
};

// The class of rows that cost `ns_a_byte` a step when they spill: floor(log2) + 44, from 1 to 63;
// 0 where it is nothing.
uint32_t HeatClass(double ns_a_byte);

class TierLoad {
 public:
  // Adds (sign 1) or takes off (sign -1) `fraction` of `entry`.
  void Change(const HeatEntry& entry, double fraction, int sign);

  // Ticks a step that the rows beyond the fastest memory cost.
  int64_t PenaltyTicks(const TierCapacity& capacity) const;

  // Of each class the fractions of its rows that are in host memory (under a device) and in the
  // spill, by the same rule.
  struct Outside {
    double host = 0;
    double spill = 0;
  };
  std::array<Outside, kHeatClasses> OutsideByClass(const TierCapacity& capacity) const;

 private:
  struct ClassLoad {
    int64_t bytes = 0;
    int64_t host_extra = 0;
    int64_t spill_extra = 0;
  };
  std::array<ClassLoad, kHeatClasses> classes_{};
};

// `bytes` in all over the tiers, in their order.
TierBytes FillTiers(uint64_t bytes, const TierCapacity& capacity);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_TIER_LOAD_H_
