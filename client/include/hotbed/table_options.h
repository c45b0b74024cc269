// What the user says when creating a table. Shapes: a table is rows x dim weights plus optimizer
// state.
#ifndef HOTBED_TABLE_OPTIONS_H_
#define HOTBED_TABLE_OPTIONS_H_

#include "common/table_spec.h"

namespace hotbed {

// The options are the table's description itself: leave `id` at 0; `seed` 0 means "by name".
using TableOptions = TableSpec;

}  // namespace hotbed

#endif  // HOTBED_TABLE_OPTIONS_H_
