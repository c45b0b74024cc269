// Aligned columns within a line of 100, for the planner's reports. Thread-compatible.
#ifndef HOTBED_PLANNER_REPORT_TEXT_TABLE_H_
#define HOTBED_PLANNER_REPORT_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hotbed {

constexpr size_t kReportColumns = 100;

// `text` on one line of at most `width` characters. Control characters are dropped, so that a name
// cannot move the cursor; longer text ends in "..". Widths count UTF-8 characters.
std::string Fitted(absl::string_view text, size_t width);

// "0 B", "812 B", "4.0 KiB", "31.2 GiB".
std::string BytesText(uint64_t bytes);
// 812, 45.1k, 6.52M, 1.20G.
std::string CountText(uint64_t count);
// Four significant digits, as in "0.01234" and "12.3".
std::string MsText(double ms);

// The first column and those named in `text_columns` are text, aligned to the left; the others are
// figures, aligned to the right.
class TextTable {
 public:
  // `name_width`: the maximum width of the first column.
  TextTable(std::vector<std::string> columns, size_t name_width, std::vector<size_t> text_columns);
  void AddRow(std::vector<std::string> cells);  // as many as columns
  // Header and rows, indented by two, none longer than kReportColumns.
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
  size_t name_width_;
  std::vector<bool> is_text_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_TEXT_TABLE_H_
