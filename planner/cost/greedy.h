// A first placement: largest units first, each on the server whose time is least with it. Pure
// functions on a state.
//
// Order: fixed units, units with fewer allowed servers, host groups, the rest; within each class by
// the larger of a unit's shares of all time and of all room, largest first. If a unit finds no
// room, others move away from a server that is allowed to it.
#ifndef HOTBED_PLANNER_COST_GREEDY_H_
#define HOTBED_PLANNER_COST_GREEDY_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/cost/placement_state.h"

namespace hotbed {

enum class GreedyAim : uint8_t {
  kTime,  // least time of the server
  kRoom,  // least room left on the server: to fit at all; units are then ordered by bytes alone
};

// All units of the problem in the order above.
std::vector<uint32_t> GreedyOrder(const Problem& problem, GreedyAim aim);

// The server for `unit`, or kNobody if none has room.
uint32_t ChooseServer(PlacementState& state, uint32_t unit, GreedyAim aim);

// Moves of other units that make room on `server`, each a unit and its new server. kNobody: there
// are none.
struct MadeRoom {
  uint32_t server = kNobody;
  std::vector<std::pair<uint32_t, uint32_t>> moved;
};

// Moves other units so that `unit`, placed or not, has room on the returned server: the smallest
// unit that is enough, or else several, largest first, off the fastest server where that works.
// Units with `locked` set stay; empty: none is locked.
MadeRoom MakeRoom(PlacementState& state, uint32_t unit, const std::vector<bool>& locked);

// Places `units` in order; stops at the first unit without a place and returns it, or kNobody.
uint32_t PlaceGreedily(PlacementState& state, const std::vector<uint32_t>& units, GreedyAim aim);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_GREEDY_H_
