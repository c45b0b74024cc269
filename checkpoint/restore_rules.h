// Which tables may begin with the rows of a saved one. Pure.
#ifndef HOTBED_CHECKPOINT_RESTORE_RULES_H_
#define HOTBED_CHECKPOINT_RESTORE_RULES_H_

#include "absl/status/status.h"
#include "common/tables/table_spec.h"

namespace hotbed {

// InvalidArgument names the option, both values and what may differ: name, placement, durability
// and weight type may, and a bounded table may have more rows.
absl::Status CheckRestorable(const TableSpec& saved, const TableSpec& wanted);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_RESTORE_RULES_H_
