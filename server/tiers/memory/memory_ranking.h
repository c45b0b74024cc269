// The walk of a RowRanking over the rows in memory. Confined to the shard's executor.
//
// It goes from the last slot to the first. Rows that move within memory move towards the first one,
// so that none is missed; rows that leave memory meanwhile are in WriteBack or in the spill tier by
// its end.
#ifndef HOTBED_SERVER_TIERS_MEMORY_MEMORY_RANKING_H_
#define HOTBED_SERVER_TIERS_MEMORY_MEMORY_RANKING_H_

#include "server/tiers/api/row_ranking.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/memory/residency.h"
#include "server/tiers/memory/row_table_state.h"

namespace hotbed {

// One step, of RowRanking::rows_per_step.
void RankMemoryStep(const RowTableState& state, Residency* residency, RowRanking* ranking,
                    MemoryWalk* walk);
// One step of TieredStore::VisitMemory.
void VisitMemoryStep(const RowTableState& state, Residency* residency, uint32_t rows_max,
                     MemoryWalk* walk, TieredStore::RowVisitor visit);

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_MEMORY_RANKING_H_
