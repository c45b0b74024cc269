#include "planner/report/text_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace hotbed {
namespace {

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

size_t Width(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), StartsCharacter));
}

}  // namespace

std::string Fitted(absl::string_view text, size_t width) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  }
  if (Width(out) <= width) return out;
  size_t kept = 0;
  size_t characters = 0;
  for (; kept < out.size(); ++kept) {
    if (StartsCharacter(out[kept]) && characters++ == width - std::min<size_t>(2, width)) break;
  }
  return absl::StrCat(out.substr(0, kept), width >= 2 ? ".." : "");
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string CountText(uint64_t count) {
  if (count < 10000) return absl::StrCat(count);
  static constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E"};
  double value = static_cast<double>(count) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g%s", value, kUnits[unit]);
}

std::string MsText(double ms) { return absl::StrFormat("%.4g", ms); }

TextTable::TextTable(std::vector<std::string> columns, size_t name_width,
                     std::vector<size_t> text_columns)
    : name_width_(name_width), is_text_(columns.size()) {
  is_text_[0] = true;
  for (const size_t column : text_columns) is_text_[column] = true;
  rows_.push_back(std::move(columns));
}

void TextTable::AddRow(std::vector<std::string> cells) {
  HOTBED_CHECK(cells.size() == is_text_.size());
  cells[0] = Fitted(cells[0], name_width_);
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToText() const {
  std::vector<size_t> width(is_text_.size());
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], Width(row[c]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - Width(row[c]), ' ');
      absl::StrAppend(&line, c == 0 ? " " : "  ",
                      is_text_[c] ? row[c] + padding : padding + row[c]);
    }
    line = Fitted(line, kReportColumns);
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

}  // namespace hotbed
