// A first placement: largest units first, each where the server's time then is least. Pure
// functions on a state.
//
// Order: fixed units, units with fewer allowed servers, host groups, the rest; in each class by the
// larger of their parts of all time and of all room, largest first. A unit that finds no room makes
// some: others move from a server that it may be on.
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

// The server that `unit` should go to, or kNobody where none has room.
uint32_t ChooseServer(PlacementState& state, uint32_t unit, GreedyAim aim);

// Moves of other units that leave room on `server` (kNobody: there are none): each a unit and where
// it went.
struct MadeRoom {
  uint32_t server = kNobody;
  std::vector<std::pair<uint32_t, uint32_t>> moved;
};

// Moves others so that `unit`, placed or not, has room on the server that it returns: the smallest
// unit that is enough, or else several, largest first, of the first server by speed where that
// works. Units with `locked` set stay (empty: none).
MadeRoom MakeRoom(PlacementState& state, uint32_t unit, const std::vector<bool>& locked);

// Places `units` in order; returns the first that found no place, at which it stops, or kNobody.
uint32_t PlaceGreedily(PlacementState& state, const std::vector<uint32_t>& units, GreedyAim aim);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_GREEDY_H_
