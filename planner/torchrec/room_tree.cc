#include "planner/torchrec/room_tree.h"

#include <algorithm>
#include <bit>

namespace hotbed::torchrec {

void RoomTree::Reset(uint32_t places) {
  leaves_ = std::bit_ceil(std::max(places, 1u));
  // Nothing is so small that it would fit into less than nothing.
  nodes_.assign(2 * static_cast<size_t>(leaves_), {.least_ms = 0, .most = {.hbm = -1, .ddr = -1}});
}

void RoomTree::Set(uint32_t place, double ms, const Storage& free) {
  uint32_t node = leaves_ + place;
  nodes_[node] = {.least_ms = ms, .most = free};
  for (node /= 2; node > 0; node /= 2) {
    const Node& left = nodes_[2 * node];
    const Node& right = nodes_[2 * node + 1];
    nodes_[node].least_ms = std::min(left.least_ms, right.least_ms);
    nodes_[node].most.hbm = std::max(left.most.hbm, right.most.hbm);
    nodes_[node].most.ddr = std::max(left.most.ddr, right.most.ddr);
  }
}

std::optional<uint32_t> RoomTree::First(const Storage& storage) const {
  Best best;
  Find(1, 0, leaves_, storage, &best);
  return best.found ? std::optional(best.place) : std::nullopt;
}

void RoomTree::Find(uint32_t node, uint32_t first, uint32_t width, const Storage& storage,
                    Best* best) const {
  const Node& here = nodes_[node];
  if (!storage.FitsIn(here.most)) return;
  if (best->found &&
      (here.least_ms > best->ms || (here.least_ms == best->ms && first > best->place))) {
    return;
  }
  if (width == 1) {
    *best = {.found = true, .ms = here.least_ms, .place = first};
    return;
  }
  const uint32_t half = width / 2;
  if (nodes_[2 * node + 1].least_ms < nodes_[2 * node].least_ms) {
    Find(2 * node + 1, first + half, half, storage, best);
    Find(2 * node, first, half, storage, best);
  } else {
    Find(2 * node, first, half, storage, best);
    Find(2 * node + 1, first + half, half, storage, best);
  }
}

}  // namespace hotbed::torchrec
