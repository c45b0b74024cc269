#include "planner/cost/tier_load.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hotbed {
namespace {

int64_t Rounded(double x) { return static_cast<int64_t>(std::floor(x + 0.5)); }

uint64_t SaturatedSum(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

}  // namespace

uint64_t TierCapacity::Total() const { return SaturatedSum(SaturatedSum(device, host), spill); }

uint32_t HeatClass(double ns_per_byte) {
  if (!(ns_per_byte > 0)) return 0;
  int exponent = 0;
  std::frexp(ns_per_byte, &exponent);  // exact: ns_per_byte is in [2^(exponent-1), 2^exponent)
  return static_cast<uint32_t>(
      std::clamp(exponent - 1 + 44, 1, static_cast<int>(kHeatClasses) - 1));
}

void TierLoad::Change(const HeatEntry& entry, double fraction, int sign) {
  ClassLoad& load = classes_[entry.heat];
  load.bytes += sign * Rounded(entry.bytes * fraction);
  load.host_extra += sign * Rounded(entry.host_extra * fraction);
  load.spill_extra += sign * Rounded(entry.spill_extra * fraction);
}

int64_t TierLoad::PenaltyTicks(const TierCapacity& capacity) const {
  const auto outside = OutsideByClass(capacity);
  double ticks = 0;
  for (uint32_t c = kHeatClasses; c-- > 0;) {
    ticks += outside[c].host * static_cast<double>(classes_[c].host_extra) +
             outside[c].spill * static_cast<double>(classes_[c].spill_extra);
  }
  return Rounded(ticks);
}

std::array<TierLoad::Outside, kHeatClasses> TierLoad::OutsideByClass(
    const TierCapacity& capacity) const {
  std::array<Outside, kHeatClasses> outside{};
  double device = static_cast<double>(capacity.device);
  double host = static_cast<double>(capacity.host);
  for (uint32_t c = kHeatClasses; c-- > 0;) {
    const double bytes = static_cast<double>(classes_[c].bytes);
    if (bytes <= 0) continue;
    const double in_device = std::min(device, bytes);
    const double in_host = std::min(host, bytes - in_device);
    device -= in_device;
    host -= in_host;
    outside[c].host = (bytes - in_device) / bytes;
    outside[c].spill = (bytes - in_device - in_host) / bytes;
  }
  return outside;
}

TierBytes FillTiers(uint64_t bytes, const TierCapacity& capacity) {
  TierBytes tiers;
  tiers.device = std::min(bytes, capacity.device);
  tiers.host = std::min(bytes - tiers.device, capacity.host);
  tiers.spill = bytes - tiers.device - tiers.host;
  return tiers;
}

}  // namespace hotbed
