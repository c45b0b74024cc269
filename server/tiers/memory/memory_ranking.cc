#include "server/tiers/memory/memory_ranking.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "row_math/candidate.h"

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

// Calls offer(first, limit) for a run of at most `rows_max` slots that may hold rows, downwards.
void StepOverSlots(const RowTableState& state, Residency* residency, SlotRange wanted,
                   uint32_t rows_max, MemoryWalk* walk,
                   absl::FunctionRef<void(uint32_t first, uint32_t limit)> offer) {
  if (walk->slots_left == 0) return;
  const HotTier& hot = *residency->hot();
  uint32_t& left = walk->slots_left;
  left = std::min(left, wanted.limit);
  const uint32_t skip_until = left - std::min(left, kSkippedMax);
  while (left > std::max(wanted.first, skip_until) && !hot.paid(left - 1)) {
    left = hot.ChunkFirst(left - 1);
  }
  uint32_t first = left;
  const uint32_t full = left - std::min(left, rows_max);
  while (first > std::max(wanted.first, full) && hot.paid(first - 1)) {
    first = std::max({hot.ChunkFirst(first - 1), wanted.first, full});
  }
  if (first < left) {
    offer(first, left);
    left = first;
  }
  if (left > wanted.first) return;
  left = 0;
  walk->all = !state.may_miss();
  if (!walk->all) state.write_back.AddPositions(&walk->leaving);
}

}  // namespace

void RankMemoryStep(const RowTableState& state, Residency* residency, RowRanking* ranking,
                    MemoryWalk* walk) {
  const RowTable& rows = *residency->table();
  const auto offer = [&](uint32_t first, uint32_t limit) {
    const StoredRun run = {rows.weights + uint64_t{rows.weight_stride} * first, rows.weight_stride,
                           limit - first};
    ranking->Offer(run, [&](uint32_t row, uint64_t* position) {
      const uint32_t slot = first + row;
      *position = residency->PositionOfSlot(slot);
      return (rows.bits[slot] & kRowExists) != 0 &&
             !IsCandidateRow(rows.admission, rows.state + uint64_t{rows.state_bytes} * (slot + 1));
    });
  };
  StepOverSlots(state, residency, WantedSlots(rows, *ranking), ranking->rows_per_step(), walk,
                offer);
}

void VisitMemoryStep(const RowTableState& state, Residency* residency, uint32_t rows_max,
                     MemoryWalk* walk, TieredStore::RowVisitor visit) {
  const RowTable& rows = *residency->table();
  const auto offer = [&](uint32_t first, uint32_t limit) {
    for (uint32_t slot = first; slot < limit; ++slot) {
      if ((rows.bits[slot] & kRowExists) == 0) continue;
      visit(residency->PositionOfSlot(slot), rows.weights + uint64_t{rows.weight_stride} * slot,
            rows.state + uint64_t{rows.state_bytes} * slot);
    }
  };
  StepOverSlots(state, residency, {0, rows.slots}, rows_max, walk, offer);
}

}  // namespace hotbed
