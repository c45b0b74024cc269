#include "server/tiers/memory/memory_ranking.h"

#include <algorithm>

namespace hotbed {
namespace {

// Slots that a step passes over because they hold no rows.
constexpr uint32_t kSkippedMax = 1u << 20;

// Slots that may hold rows which are wanted.
struct SlotRange {
  uint32_t first = 0;
  uint32_t limit = 0;
};

SlotRange WantedSlots(const RowTable& rows, const RowRanking& ranking) {
  if (!rows.direct) return {0, rows.slots};
  const uint64_t begin = rows.first_position, end = begin + rows.slots;
  if (ranking.last_position() < begin || ranking.first_position() >= end) return {};
  const uint64_t first = std::max(begin, ranking.first_position());
  const uint64_t last = std::min(end - 1, ranking.last_position());
  return {static_cast<uint32_t>(first - begin), static_cast<uint32_t>(last - begin + 1)};
}

}  // namespace

void RankMemoryStep(const RowTableState& state, Residency* residency, RowRanking* ranking,
                    MemoryWalk* walk) {
  if (walk->slots_left == 0) return;
  const RowTable& rows = *residency->table();
  const HotTier& hot = *residency->hot();
  const SlotRange wanted = WantedSlots(rows, *ranking);
  uint32_t& left = walk->slots_left;
  left = std::min(left, wanted.limit);
  const uint32_t skip_until = left - std::min(left, kSkippedMax);
  while (left > std::max(wanted.first, skip_until) && !hot.paid(left - 1)) {
    left = hot.ChunkFirst(left - 1);
  }
  uint32_t first = left;
  const uint32_t full = left - std::min(left, ranking->rows_per_step());
  while (first > std::max(wanted.first, full) && hot.paid(first - 1)) {
    first = std::max({hot.ChunkFirst(first - 1), wanted.first, full});
  }
  if (first < left) {
    const StoredRun run = {rows.weights + uint64_t{rows.weight_stride} * first, rows.weight_stride,
                           left - first};
    ranking->Offer(run, [&](uint32_t row, uint64_t* position) {
      const uint32_t slot = first + row;
      *position = residency->PositionOfSlot(slot);
      return (rows.bits[slot] & kRowExists) != 0;
    });
    left = first;
  }
  if (left > wanted.first) return;
  left = 0;
  walk->all = !state.may_miss();
  if (!walk->all) state.write_back.AddPositions(&walk->leaving);
}

}  // namespace hotbed
