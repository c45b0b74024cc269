// Every option of a table, once: its flag, its key in files and JSON, its words, and which may
// change. The commands that create, alter and describe tables, and the check that docs/tables.md
// has them all, go over this list. What values are allowed is ValidateTableSpec's to say.
//
// Pure functions.
#ifndef HOTBED_CLI_TABLES_TABLE_OPTION_H_
#define HOTBED_CLI_TABLES_TABLE_OPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/table_spec.h"

namespace hotbed {

// How a value is written: in JSON as a boolean, a whole number, a number, or a string.
enum class OptionShape : uint8_t { kFlag, kInteger, kNumber, kText };

struct TableOption {
  const char* name;   // "clip-value": the flag --clip-value, and the key of a table file
  const char* alias;  // another name of it, or ""
  const char* field;  // "optimizer.clip_value": in JSON, and as errors name it
  const char* group;  // heading in --help
  OptionShape shape;
  const std::vector<std::string>* words;  // all values there are; null: not an enumeration
  const char* about;                      // one line
  const char* fixed_because;              // why `table alter` refuses it; null: it may change
  absl::Status (*parse)(const TableOption& option, absl::string_view text, TableSpec* spec);
  std::string (*print)(const TableSpec& spec);  // what `parse` reads; "": not set
};

// In the order in which people are shown them.
absl::Span<const TableOption> TableOptionList();

// `word` with '-' for '_'.
std::string Dashed(absl::string_view word);

// By flag, other name or field, with '_' for '-' as good. Null: unknown.
const TableOption* FindTableOption(absl::string_view name);

// Sets the option. InvalidArgument says what the text is not, the nearest known word where there
// is one, and all words.
absl::Status SetTableOption(const TableOption& option, absl::string_view text, TableSpec* spec);

// The shortest text that reads back as the same number.
std::string FloatText(float value);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_TABLE_OPTION_H_
