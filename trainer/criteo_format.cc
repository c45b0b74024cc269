#include "trainer/criteo_format.h"

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr int kIntegers = 13;
constexpr int kCategories = 26;
constexpr int kColumns = 1 + kIntegers + kCategories;

using Columns = std::array<absl::string_view, kColumns>;

absl::Status SplitLine(absl::string_view line, char delimiter, Columns* columns) {
  int n = 0;
  size_t first = 0;
  while (true) {
    const size_t limit = line.find(delimiter, first);
    if (n < kColumns) (*columns)[n] = line.substr(first, limit - first);
    ++n;
    if (limit == absl::string_view::npos) break;
    first = limit + 1;
  }
  if (n != kColumns) {
    return absl::InvalidArgumentError(absl::StrCat(
        n, " columns where ", kColumns, " are expected (label, 13 integers, 26 categories)"));
  }
  return absl::OkStatus();
}

absl::Status ParseInteger(absl::string_view text, int field, int64_t* value, bool* missing) {
  *missing = text.empty();
  if (*missing || absl::SimpleAtoi(text, value)) return absl::OkStatus();
  double number;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number) && std::abs(number) < 9e18) {
    *value = static_cast<int64_t>(number);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("I", field + 1, " is '", text, "': not a number"));
}

}  // namespace

uint32_t IntegerBucket(int64_t value) {
  if (value < 0) return 1;
  const double l = std::log(static_cast<double>(value) + 1.0);
  // The largest 64-bit value gives 43.7^2 = 1907, which is clamped to the last bucket.
  const double bucket = 2.0 + std::floor(l * l);
  return bucket >= kIntegerBuckets ? kIntegerBuckets - 1 : static_cast<uint32_t>(bucket);
}

uint64_t CategoryId(int field, absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  hash = (hash ^ text.size()) * 0x100000001b3ull;
  return Mix64(hash ^ Mix64(static_cast<uint64_t>(field) + 1));
}

FieldLayout CriteoLayout(const std::string& prefix) {
  FieldLayout layout;
  layout.tables = {prefix + "_integers", prefix + "_categories"};
  for (int f = 0; f < kIntegers; ++f) layout.table_of_field.push_back(0);
  for (int f = 0; f < kCategories; ++f) layout.table_of_field.push_back(1);
  return layout;
}

bool IsCriteoHeader(absl::string_view line) { return absl::StartsWith(line, "label,I1,"); }

absl::Status AppendCriteoLine(absl::string_view line, char delimiter, Batch* batch) {
  if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  Columns columns;
  if (absl::Status s = SplitLine(line, delimiter, &columns); !s.ok()) return s;
  if (columns[0] != "0" && columns[0] != "1") {
    return absl::InvalidArgumentError(absl::StrCat("label is '", columns[0], "': must be 0 or 1"));
  }
  std::array<uint64_t, kIntegers> buckets;
  for (int f = 0; f < kIntegers; ++f) {
    int64_t value = 0;
    bool missing = false;
    if (absl::Status s = ParseInteger(columns[1 + f], f, &value, &missing); !s.ok()) return s;
    buckets[f] = static_cast<uint64_t>(f) * kIntegerBuckets + (missing ? 0 : IntegerBucket(value));
  }
  for (int f = 0; f < kCategories; ++f) {
    for (char c : columns[1 + kIntegers + f]) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
        return absl::InvalidArgumentError(
            absl::StrCat("C", f + 1, " is '", columns[1 + kIntegers + f], "': not hexadecimal"));
      }
    }
  }
  batch->labels.push_back(columns[0] == "1" ? 1.0f : 0.0f);
  for (int f = 0; f < kIntegers; ++f) batch->ids[f].push_back(buckets[f]);
  for (int f = 0; f < kCategories; ++f) {
    batch->ids[kIntegers + f].push_back(CategoryId(f, columns[1 + kIntegers + f]));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
