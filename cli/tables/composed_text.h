// Composed tables as people read them. Pure functions.
#ifndef HOTBED_CLI_TABLES_COMPOSED_TEXT_H_
#define HOTBED_CLI_TABLES_COMPOSED_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "common/tables/table_spec.h"
#include "nlohmann/json.hpp"

namespace hotbed {

// "quotient-remainder, multiply", "block, dims 64,16".
std::string CompositionText(const TableSpec& composed);

// How a row is made of the rows of the parts, as a formula with their names.
std::string RowFormula(const TableSpec& composed);

// "2,097,152 instead of 536,870,912, 99.6 % saved".
std::string SavedText(const TableSpec& composed, absl::Span<const TableSpec> parts);

// The composed table's options, its parameters and those saved, and the names of its parts.
nlohmann::ordered_json ComposedJson(absl::Span<const TableSpec> parts);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_COMPOSED_TEXT_H_
