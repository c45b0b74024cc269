// Aligned columns for a terminal. Thread-compatible.
//
//   TablePrinter table({"name", "rows"});
//   table.AddRow({"user", "1,000"});
//   std::cout << table.ToText();
//
// Columns of figures are aligned to the right. Widths count UTF-8 characters; control characters
// are dropped, so that a name cannot move the cursor.
#ifndef HOTBED_TERMINAL_TABLE_PRINTER_H_
#define HOTBED_TERMINAL_TABLE_PRINTER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hotbed {

class TablePrinter {
 public:
  explicit TablePrinter(std::vector<std::string> columns);
  // As many cells as columns.
  void AddRow(std::vector<std::string> cells);
  // The header line and the rows, each ended by a newline and indented by `indent` blanks.
  std::string ToText(int indent = 0) const;
  size_t row_count() const { return rows_.size(); }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1234567 -> "1,234,567".
std::string WithCommas(uint64_t value);
// A rate or count with three digits: 812, 45.1k, 6.52M, 1.20G.
std::string ShortCount(double value);
// A duration with three digits: "431 us", "12.3 ms", "4.56 s", "3m 20s".
std::string ShortSeconds(double seconds);

}  // namespace hotbed

#endif  // HOTBED_TERMINAL_TABLE_PRINTER_H_
