// The list of all options of a table: flag, key in files and JSON, words, and whether it may
// change. The commands that create, alter and describe tables use this list, as does the test that
// docs/tables.md is complete. ValidateTableSpec checks the values.
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
#include "common/tables/table_spec.h"

namespace hotbed {

// The type of a value in JSON: a boolean, a whole number, a number, or a string.
enum class OptionShape : uint8_t { kFlag, kInteger, kNumber, kText };

struct TableOption {
  const char* name;   // "clip-value": the flag --clip-value and the key in a table file
  const char* alias;  // another name, or ""
  const char* field;  // "optimizer.clip_value": in JSON and in errors
  const char* group;  // heading in --help
  OptionShape shape;
  const std::vector<std::string>* words;  // all values; null: not an enumeration
  const char* about;                      // one line
  const char* fixed_because;  // the reason why `table alter` refuses it; null: it may change
  absl::Status (*parse)(const TableOption& option, absl::string_view text, TableSpec* spec);
  std::string (*print)(const TableSpec& spec);  // the text that `parse` reads; "": not set
};

// In the order in which they are shown.
absl::Span<const TableOption> TableOptionList();

// `word` with '-' for '_'.
std::string Dashed(absl::string_view word);

// By flag, alias or field; '_' and '-' are the same. Null: unknown.
const TableOption* FindTableOption(absl::string_view name);

// Sets the option. InvalidArgument says what the text should be: for a word, it names all words and
// the nearest one.
absl::Status SetTableOption(const TableOption& option, absl::string_view text, TableSpec* spec);

// Takes the value of an option that may change from `spec` into `change`.
void TakeChange(const TableOption& option, const TableSpec& spec, TableChange* change);

// The shortest text that reads back as the same number.
std::string FloatText(float value);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_TABLE_OPTION_H_
