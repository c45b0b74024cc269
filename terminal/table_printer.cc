#include "terminal/table_printer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace hotbed {
namespace {

std::string Plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  }
  return out;
}

size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool IsFigure(const std::string& cell) {
  const size_t first = cell.find_first_not_of("-+<>~ ");
  return first != std::string::npos && cell[first] >= '0' && cell[first] <= '9' &&
         cell.find(':') == std::string::npos;
}

}  // namespace

TablePrinter::TablePrinter(std::vector<std::string> columns) : columns_(std::move(columns)) {}

void TablePrinter::AddRow(std::vector<std::string> cells) {
  HOTBED_CHECK(cells.size() == columns_.size())
      << cells.size() << " cells for " << columns_.size() << " columns";
  for (std::string& cell : cells) cell = Plain(cell);
  rows_.push_back(std::move(cells));
}

std::string TablePrinter::ToText(int indent) const {
  std::vector<size_t> width;
  std::vector<bool> right;
  for (size_t c = 0; c < columns_.size(); ++c) {
    width.push_back(Width(columns_[c]));
    bool figures = !rows_.empty();
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], Width(row[c]));
      figures = figures && (IsFigure(row[c]) || row[c].empty() || row[c] == "-");
    }
    right.push_back(figures);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) text += "  ";
      const std::string fill(width[c] - Width(cells[c]), ' ');
      text += right[c] ? fill + cells[c] : cells[c] + fill;
    }
    const size_t last = text.find_last_not_of(' ');
    text.erase(last == std::string::npos ? 0 : last + 1);
    absl::StrAppend(&out, text, "\n");
  };
  line(columns_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string WithCommas(uint64_t value) {
  const std::string digits = absl::StrCat(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string ShortCount(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (std::abs(value) >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return absl::StrFormat("%.0f", value);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f%s", decimals, value, kUnits[unit]);
}

std::string ShortSeconds(double seconds) {
  if (seconds < 0) return absl::StrCat("-", ShortSeconds(-seconds));
  if (seconds >= 59.95) {
    const int64_t whole = std::llround(seconds);
    if (whole >= 3600) return absl::StrFormat("%dh %dm", whole / 3600, whole % 3600 / 60);
    return absl::StrFormat("%dm %ds", whole / 60, whole % 60);
  }
  const char* unit = "s";
  if (seconds < 0.9995e-3) {
    seconds *= 1e6;
    unit = "us";
  } else if (seconds < 0.9995) {
    seconds *= 1e3;
    unit = "ms";
  }
  const int decimals = seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, seconds, unit);
}

}  // namespace hotbed
