// The rank that comes first by time so far among those that have room: a tournament over ranks
// whose nodes know the least time and the most room below them. O(ranks) memory, O(log ranks) a
// change, about that a question.
//
// Places stand for ranks in the order that breaks ties: the lower place first. Not thread safe.
#ifndef HOTBED_PLANNER_TORCHREC_ROOM_TREE_H_
#define HOTBED_PLANNER_TORCHREC_ROOM_TREE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/torchrec/estimate.h"

namespace hotbed::torchrec {

class RoomTree {
 public:
  // Empties the tree and makes it one of `places`, all without room.
  void Reset(uint32_t places);
  void Set(uint32_t place, double ms, const Storage& free);
  // The first place by (ms, place) with room for `storage`.
  std::optional<uint32_t> First(const Storage& storage) const;

 private:
  struct Node {
    double least_ms = 0;
    Storage most;  // each tier for itself
  };
  struct Best {
    bool found = false;
    double ms = 0;
    uint32_t place = 0;
  };

  // Looks below `node`, which stands for `width` places from `first`.
  void Find(uint32_t node, uint32_t first, uint32_t width, const Storage& storage,
            Best* best) const;

  uint32_t leaves_ = 1;  // a power of two
  std::vector<Node> nodes_;
};

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_ROOM_TREE_H_
