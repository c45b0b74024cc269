// The server of each unit and the resulting time of each server: the state that the searches
// change. Place must only be called where MayPlace allows it, except that a rebalance loads current
// plans that break a rule. Thread-compatible; the problem must outlive it.
//
// Rules: the server is allowed to the unit and has room for its bytes; no two units of a group are
// on one host; all units of a host group are on one host. A replica in the zone of another member
// of its group is a conflict, which is counted but not forbidden.
#ifndef HOTBED_PLANNER_COST_PLACEMENT_STATE_H_
#define HOTBED_PLANNER_COST_PLACEMENT_STATE_H_

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "planner/cost/problem.h"

namespace hotbed {

class PlacementState {
 public:
  // Usable servers by ticks, then used bytes, then index.
  using Order = std::set<std::tuple<int64_t, uint64_t, uint32_t>>;

  explicit PlacementState(const Problem& problem);

  const Problem& problem() const { return problem_; }
  uint32_t ServerOf(uint32_t unit) const { return server_of_[unit]; }
  const std::vector<uint32_t>& UnitsOn(uint32_t server) const { return servers_[server].units; }
  int64_t Ticks(uint32_t server) const { return servers_[server].ticks; }
  uint64_t Used(uint32_t server) const { return servers_[server].used; }
  uint64_t Free(uint32_t server) const;
  // Whether rows outside of the fastest memory cost the server time.
  bool Spills(uint32_t server) const { return servers_[server].ticks > servers_[server].base; }
  const TierLoad& Tiers(uint32_t server) const { return servers_[server].tiers; }
  const Order& BySpeed() const { return by_speed_; }
  int64_t SlowestTicks() const { return std::get<0>(*by_speed_.rbegin()); }

  // Whether the rules allow `unit`, wherever it is now, on `server` after `vacated` more bytes of
  // it become free.
  bool MayPlace(uint32_t unit, uint32_t server, uint64_t vacated = 0) const;

  // The same, but ignoring room.
  bool RulesAllow(uint32_t unit, uint32_t server) const;

  // The number of placed members of the unit's group in the zone of `server`.
  uint32_t ZoneConflicts(uint32_t unit, uint32_t server) const;

  // Ticks of `server` with `added` and without `removed`, which must be on it; kNobody: none.
  int64_t TicksChanged(uint32_t server, uint32_t added, uint32_t removed);

  // Whether all rows would still be in the fastest memory with `unit` added: then TicksChanged is a
  // plain sum.
  bool StaysFast(uint32_t unit, uint32_t server) const;

  void Place(uint32_t unit, uint32_t server);
  void Remove(uint32_t unit);
  void Move(uint32_t unit, uint32_t server);

  // Adds bytes on `server` outside of any placed unit (those of a unit that is still scattered);
  // `sign` -1 removes them.
  void Occupy(uint32_t server, uint64_t bytes, int sign);

 private:
  struct ServerState {
    int64_t base = 0;   // load and units with all rows fast
    int64_t ticks = 0;  // with the penalty
    uint64_t used = 0;
    std::vector<uint32_t> units;
    TierLoad tiers;
  };

  bool SharesHost(const Unit& unit, uint32_t index, uint32_t server) const;
  bool FitsHostGroup(const Unit& unit, uint32_t index, uint32_t server) const;
  void ChangeTiers(ServerState& server, const Unit& unit, int sign);
  uint64_t FastBytes(uint32_t server) const;
  int64_t TicksOf(const ServerState& state, uint32_t server) const;
  void Apply(uint32_t unit, uint32_t server, int sign);

  const Problem& problem_;
  bool zones_differ_ = false;  // more than one known zone among the usable servers
  std::vector<ServerState> servers_;
  std::vector<uint32_t> server_of_;
  std::vector<uint32_t> position_;  // of a unit in its server's list
  std::vector<uint64_t> host_free_;
  struct HostGroup {
    uint64_t bytes = 0;
    uint32_t placed = 0;
    uint32_t host = 0;
  };
  std::vector<HostGroup> host_groups_;
  Order by_speed_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_PLACEMENT_STATE_H_
