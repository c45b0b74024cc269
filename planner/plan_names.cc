#include "planner/planner_output.h"

namespace hotbed {

const char* ShardingName(Sharding sharding) {
  switch (sharding) {
    case Sharding::kTableWise:
      return "table_wise";
    case Sharding::kRowWise:
      return "row_wise";
    case Sharding::kColumnWise:
      return "column_wise";
    case Sharding::kTableRowWise:
      return "table_row_wise";
    case Sharding::kTableColumnWise:
      return "table_column_wise";
    case Sharding::kGrid:
      return "grid";
    case Sharding::kDataParallel:
      return "data_parallel";
  }
  return "";
}

}  // namespace hotbed
