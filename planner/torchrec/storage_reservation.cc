#include "planner/torchrec/storage_reservation.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "planner/model/cost_constants.h"

namespace hotbed::torchrec {
namespace {

PlanError NothingLeft(const PlannerInput& input, const RankTopology& topology,
                      const Reserved& reserved) {
  const bool hbm = reserved.left[0].hbm < 0;
  const absl::int128 capacity = hbm ? topology.capacity[0].hbm : topology.capacity[0].ddr;
  const absl::int128 missing = hbm ? -reserved.left[0].hbm : -reserved.left[0].ddr;
  PlanError error;
  error.kind = PlanErrorKind::kInsufficientStorage;
  error.limit = ClampBytes(capacity);
  error.missing_bytes = ClampBytes(missing);
  error.message = absl::StrCat(
      "reserve 'heuristic' asks for more than server '",
      input.topology.servers[topology.server_of_rank[0]].name, "' has: of its ", *error.limit,
      hbm ? " device_bytes " : " host_bytes ", input.options.reserve.fraction * 100,
      "% are set aside, ", ClampBytes(reserved.dense.hbm + reserved.dense.ddr),
      " bytes for dense parameters (6 x dense_bytes) and ",
      ClampBytes(reserved.ids.hbm + reserved.ids.ddr), " bytes for ids; ", *error.missing_bytes,
      " bytes are missing. Lower the fraction, dense_bytes or batch_size (",
      input.workload.batch_size, "), reserve by percentage, or take servers with more memory");
  return error;
}

}  // namespace

PlanResult<Reserved> ReserveStorage(const PlannerInput& input, const RankTopology& topology,
                                    const std::vector<TableWorkload>& loads) {
  const Reserve& reserve = input.options.reserve;
  Reserved reserved;
  reserved.left = topology.capacity;
  if (reserve.kind == ReserveKind::kNone) return reserved;
  for (Storage& left : reserved.left) {
    left.hbm = static_cast<absl::int128>((1 - reserve.fraction) * static_cast<double>(left.hbm));
  }
  if (reserve.kind == ReserveKind::kPercentage) return reserved;
  const bool heuristic = reserve.kind == ReserveKind::kHeuristic;
  double ids = 0;
  for (const TableWorkload& load : loads) ids += load.ids_reserved;
  const bool cuda = topology.device == PlannerDevice::kCuda;
  (cuda ? reserved.dense.hbm : reserved.dense.ddr) =
      absl::int128(reserve.dense_bytes) * (heuristic ? 6 : 1);
  (cuda ? reserved.ids.hbm : reserved.ids.ddr) =
      CeilingBytes(ids * kIdBytes) * (heuristic ? 20 : 1);
  for (Storage& left : reserved.left) {
    left -= reserved.dense;
    left -= reserved.ids;
  }
  if (heuristic && (reserved.left[0].hbm < 0 || reserved.left[0].ddr < 0)) {
    return NothingLeft(input, topology, reserved);
  }
  return reserved;
}

}  // namespace hotbed::torchrec
