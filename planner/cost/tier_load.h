// The rows on one server by tier: which are hot and which spill. A plain value, thread-compatible.
//
// Heat: rows are put into 64 classes by the time that spilling costs per byte; each class is a
// factor of two wide. Memory takes whole classes from the hottest on, and in the class in which it
// ends each row has the same chance. A good eviction policy converges to that, except that it may
// tell apart rows within a factor of two: so the classes never overstate a hit ratio. Device memory
// is filled first, then host memory, then the spill.
//
// Time is in ticks, which are integers (problem.h has their length), so that adding and removing
// the same rows leaves no residue and the order of changes has no influence.
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

// Rows of about the same heat: their bytes, and their extra cost per step if they are not hot.
struct HeatEntry {
  uint32_t heat = 0;  // class
  double bytes = 0;
  double host_extra = 0;   // ticks, if they are in host memory although there is a device
  double spill_extra = 0;  // ticks, if they are in the spill, in addition to host_extra
};

// The class of rows that cost `ns_per_byte` per step if they spill: floor(log2) + 44, from 1 to 63;
// 0 if they cost nothing.
uint32_t HeatClass(double ns_per_byte);

class TierLoad {
 public:
  // Adds (sign 1) or removes (sign -1) `fraction` of `entry`.
  void Change(const HeatEntry& entry, double fraction, int sign);

  // Ticks per step for the rows beyond the fastest memory.
  int64_t PenaltyTicks(const TierCapacity& capacity) const;

  // For each class the fractions of its rows in host memory (if there is a device) and in the
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

// Fills `bytes` into the tiers, in their order.
TierBytes FillTiers(uint64_t bytes, const TierCapacity& capacity);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_TIER_LOAD_H_
