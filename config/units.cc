#include "config/units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/edit_distance.h"

namespace hotbed {
namespace {

// A unit is numerator / denominator of the base unit (bytes, milliseconds).
struct Unit {
  absl::string_view name;
  uint64_t numerator;
  uint64_t denominator;
};

constexpr Unit kByteUnits[] = {{"B", 1, 1},
                               {"KiB", uint64_t{1} << 10, 1},
                               {"MiB", uint64_t{1} << 20, 1},
                               {"GiB", uint64_t{1} << 30, 1},
                               {"TiB", uint64_t{1} << 40, 1}};
constexpr Unit kMillisUnits[] = {{"ms", 1, 1},   {"ns", 1, 1000000}, {"us", 1, 1000},
                                 {"s", 1000, 1}, {"min", 60000, 1},  {"h", 3600000, 1}};

absl::Status Bad(absl::string_view text, absl::string_view what, absl::Span<const Unit> units) {
  std::string names;
  for (const Unit& unit : units) absl::StrAppend(&names, names.empty() ? "" : ", ", unit.name);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" ", what, "; write a number and a unit of ", names));
}

// The value of `text` in the base unit, which is also the unit of a bare number. Exact for whole
// numbers.
absl::StatusOr<uint64_t> Parse(absl::string_view text, absl::Span<const Unit> units,
                               uint64_t value_max) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  size_t digits = 0;
  while (digits < trimmed.size() &&
         (absl::ascii_isdigit(trimmed[digits]) || trimmed[digits] == '.')) {
    ++digits;
  }
  const absl::string_view number = trimmed.substr(0, digits);
  const absl::string_view name = absl::StripAsciiWhitespace(trimmed.substr(digits));
  const Unit* const unit =
      name.empty()
          ? units.begin()
          : std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  double real;
  if (unit == units.end() || !absl::SimpleAtod(number, &real))
    return Bad(text, "is not valid", units);
  uint64_t whole;
  unsigned __int128 scaled;
  if (absl::SimpleAtoi(number, &whole)) {
    scaled = static_cast<unsigned __int128>(whole) * unit->numerator;
    if (scaled % unit->denominator != 0) return Bad(text, "is finer than allowed", units);
    scaled /= unit->denominator;
  } else {
    const double product = real * static_cast<double>(unit->numerator) / unit->denominator;
    if (product >= 1e19) return Bad(text, "is too large", units);
    const double nearest = std::round(product);
    // "0.1 GiB" is not a whole number of bytes and is accepted; "0.5 ms" must not become 0 or 1.
    if (std::fabs(product - nearest) > 0.01 * nearest)
      return Bad(text, "is finer than allowed", units);
    scaled = static_cast<uint64_t>(nearest);
  }
  if (scaled > value_max) return Bad(text, "is too large", units);
  return static_cast<uint64_t>(scaled);
}

std::string Exact(uint64_t value, absl::Span<const Unit> units) {
  const Unit* best = units.begin();
  for (const Unit& unit : units) {
    if (value > 0 && unit.denominator == 1 && unit.numerator > best->numerator &&
        value % unit.numerator == 0) {
      best = &unit;
    }
  }
  return absl::StrCat(value / best->numerator, best->name);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  return Parse(text, kByteUnits, UINT64_MAX);
}

absl::StatusOr<int64_t> ParseMillis(const std::string& text) {
  const absl::StatusOr<uint64_t> millis = Parse(text, kMillisUnits, INT64_MAX);
  if (!millis.ok()) return millis.status();
  return static_cast<int64_t>(*millis);
}

std::string FormatBytes(uint64_t bytes) {
  const Unit* best = kByteUnits;
  for (const Unit& unit : kByteUnits) {
    if (bytes >= unit.numerator) best = &unit;
  }
  return absl::StrFormat("%.4g %s", static_cast<double>(bytes) / best->numerator, best->name);
}

std::string ExactBytes(uint64_t bytes) { return Exact(bytes, kByteUnits); }
std::string ExactMillis(int64_t millis) {
  return Exact(static_cast<uint64_t>(millis), kMillisUnits);
}

std::string NearestWord(const std::string& word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = 2 + word.size() / 4;  // a word further away is another word
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace hotbed
