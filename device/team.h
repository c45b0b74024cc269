// A team: the lanes that do one unit of work together, in lockstep. On a GPU a team is a tile of a
// warp (device/cuda/warp_team.cuh); the team here does the same on one thread, lane after lane.
//
// Algorithms are templates over the team. Values per lane are computed by functions of the lane;
// all other values are the same for all lanes, so control flow never differs inside a team:
//
//   Map(f)             f(lane) of every lane, as one value per lane
//   Ballot(values, p)  bit l: p(value of lane l)
//   Get(values, lane)  one lane's value, for all lanes; 4 or 8 bytes. Allowed inside Map if all
//                      lanes call it
//   Own(values, lane)  inside Map or Strided(kLanes): the lane's own
//   Strided(count, f)  f(i) for i < count; lane i % kLanes does it
//   Batched(count, make, use)  the same as use(i, make(i)), but a lane makes several before it uses
//                      the first, so that loads are issued together. make() must not depend on
//                      use().
//   Flow(count, first, make, use)  use(i, make(i)), where first = Map(make) was made before
//   Least(values)      the least of all lanes' numbers
//   Min(count, f)      the least of f(i); 0xffffffff for none
//   LaneSum(count, make, f)  the sum of f(make(i)) over a row as row_math/row_blocks.h has it: 32
//                      lanes, joined by halving; a lane makes several before it uses the first
//   Once(f)            f() by one lane
//   Sync()             writes of any lane before it are visible to all lanes after it
//   Or, And            atomic, on a byte that other teams may change concurrently
//
// C++17, plain values; f must not rely on the order of lanes.
#ifndef HOTBED_DEVICE_TEAM_H_
#define HOTBED_DEVICE_TEAM_H_

#include <cstdint>

#include "row_math/isa.h"
#include "row_math/row_blocks.h"

namespace hotbed {
namespace device {

constexpr uint32_t kBatch = 4;  // what a lane has in flight in Batched

template <uint32_t kSize>
class HostTeam {
 public:
  static constexpr uint32_t kLanes = kSize;
  template <typename T>
  struct Values {
    T of[kSize];
  };

  template <typename F>
  auto Map(F f) const -> Values<decltype(f(0u))> {
    Values<decltype(f(0u))> values;
    for (uint32_t lane = 0; lane < kSize; ++lane) values.of[lane] = f(lane);
    return values;
  }
  template <typename T, typename P>
  uint32_t Ballot(const Values<T>& values, P p) const {
    uint32_t mask = 0;
    for (uint32_t lane = 0; lane < kSize; ++lane) mask |= uint32_t{p(values.of[lane])} << lane;
    return mask;
  }
  template <typename T>
  T Get(const Values<T>& values, uint32_t lane) const {
    return values.of[lane];
  }
  template <typename T>
  T Own(const Values<T>& values, uint32_t lane) const {
    return values.of[lane];
  }
  template <typename F>
  void Strided(uint32_t count, F f) const {
    for (uint32_t i = 0; i < count; ++i) f(i);
  }
  template <typename Make, typename Use>
  void Batched(uint32_t count, Make make, Use use) const {
    decltype(make(0u)) made[kBatch];
    for (uint32_t first = 0; first < count; first += kBatch) {
      for (uint32_t j = 0; j < kBatch && first + j < count; ++j) made[j] = make(first + j);
      for (uint32_t j = 0; j < kBatch && first + j < count; ++j) use(first + j, made[j]);
    }
  }
  template <typename T, typename Make, typename Use>
  void Flow(uint32_t count, const Values<T>& first, Make make, Use use) const {
    for (uint32_t i = 0; i < count; ++i) use(i, i < kSize ? first.of[i] : make(i));
  }
  uint32_t Least(const Values<uint32_t>& values) const {
    uint32_t least = values.of[0];
    for (uint32_t lane = 1; lane < kSize; ++lane) {
      least = values.of[lane] < least ? values.of[lane] : least;
    }
    return least;
  }
  template <typename F>
  uint32_t Min(uint32_t count, F f) const {
    uint32_t least = 0xffffffffu;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t value = f(i);
      least = value < least ? value : least;
    }
    return least;
  }
  template <typename Make, typename F>
  float LaneSum(uint32_t count, Make make, F f) const {
    static_assert(kSize == hotbed::kLanes, "the sum has 32 lanes");
    float lanes[kSize] = {};
    for (uint32_t i = 0; i < count; ++i) lanes[i % kSize] += f(make(i));
    return TreeSum(lanes);
  }
  template <typename F>
  void Once(F f) const {
    f();
  }
  void Sync() const {}
  void Or(uint8_t* byte, uint8_t bits) const { *byte |= bits; }
  void And(uint8_t* byte, uint8_t bits) const { *byte &= bits; }
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_TEAM_H_
