// The options of a new table, which is rows x dim weights and their optimizer state. Every option
// with its formula: docs/tables.md.
#ifndef HOTBED_TABLE_OPTIONS_H_
#define HOTBED_TABLE_OPTIONS_H_

#include "common/tables/table_spec.h"

namespace hotbed {

// The options are the description of the table itself. Leave `id` at 0; `seed` 0 derives the seed
// from the name. ValidateTableSpec names the field that is not valid.
using TableOptions = TableSpec;

}  // namespace hotbed

#endif  // HOTBED_TABLE_OPTIONS_H_
