#include "planner/json/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/edit_distance.h"

namespace hotbed {
namespace {

constexpr uint64_t kIntegerMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
constexpr double kTwoTo63 = 9223372036854775808.0;

void ReadInteger(const PlanJson& json, const std::string& path, uint64_t max, FieldFailure* failure,
                 uint64_t* out) {
  const auto too_large = [&] {
    failure->Set(path, absl::StrCat(json.dump(), " is above the limit ", max));
  };
  uint64_t value = 0;
  if (json.is_number_unsigned()) {
    value = json.get<uint64_t>();
  } else if (json.is_number_integer()) {
    if (json.get<int64_t>() < 0) return failure->Set(path, json.dump() + " is negative");
    value = static_cast<uint64_t>(json.get<int64_t>());
  } else if (json.is_number_float()) {
    const double number = json.get<double>();
    if (number < 0) return failure->Set(path, json.dump() + " is negative");
    if (number >= kTwoTo63) return too_large();
    if (number != std::floor(number)) {
      return failure->Set(path, json.dump() + " is not a whole number");
    }
    value = static_cast<uint64_t>(number);
  } else {
    return failure->Set(path, absl::StrCat("expected a whole number, found ", json.type_name()));
  }
  if (value > max) return too_large();
  *out = value;
}

}  // namespace

void FieldFailure::Set(absl::string_view path, absl::string_view message) {
  if (error) return;
  error = PlanError{PlanErrorKind::kInput, absl::StrCat(path, ": ", message)};
  if (!table.empty()) error->table = table;
}

std::string Shown(absl::string_view word) {
  constexpr size_t kShownMax = 80;
  return word.size() <= kShownMax ? std::string(word)
                                  : absl::StrCat(word.substr(0, kShownMax), "...");
}

absl::string_view NearestOf(absl::string_view word, const std::vector<absl::string_view>& known) {
  // Beyond this length no known word is near; the comparison is quadratic.
  const absl::string_view start = word.substr(0, 64);
  absl::string_view nearest = known.front();
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const absl::string_view candidate : known) {
    const size_t edits = EditDistance(start, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
              std::string* out) {
  if (!json.is_string()) {
    return failure->Set(path, absl::StrCat("expected a string, found ", json.type_name()));
  }
  *out = json.get_ref<const std::string&>();
}

void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, bool* out) {
  if (!json.is_boolean()) {
    return failure->Set(path, absl::StrCat("expected true or false, found ", json.type_name()));
  }
  *out = json.get<bool>();
}

void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, uint64_t* out) {
  ReadInteger(json, path, kIntegerMax, failure, out);
}

void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, uint32_t* out) {
  uint64_t value = *out;
  ReadInteger(json, path, std::numeric_limits<uint32_t>::max(), failure, &value);
  *out = static_cast<uint32_t>(value);
}

void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, double* out) {
  if (!json.is_number()) {
    return failure->Set(path, absl::StrCat("expected a number, found ", json.type_name()));
  }
  const double value = json.get<double>();
  if (!std::isfinite(value) || std::fabs(value) >= kTwoTo63) {
    return failure->Set(path, json.dump() + " is beyond 2^63");
  }
  *out = value;
}

JsonFields::JsonFields(const PlanJson& json, std::string path, std::vector<absl::string_view> known,
                       FieldFailure* failure)
    : json_(json), path_(std::move(path)), failure_(failure) {
  if (failure->error) return;
  if (!json.is_object()) {
    failure->Set(path_.empty() ? "input" : path_,
                 absl::StrCat("expected an object, found ", json.type_name()));
    return;
  }
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    failure->Set(Path(Shown(key)),
                 absl::StrCat("unknown key '", Shown(key), "'; the nearest known one is '",
                              NearestOf(key, known), "'"));
    return;
  }
}

const PlanJson* JsonFields::Find(absl::string_view key) const {
  if (failure_->error || !json_.is_object()) return nullptr;
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? nullptr : &*found;
}

const PlanJson* JsonFields::FindRequired(absl::string_view key) const {
  const PlanJson* const found = Find(key);
  if (found == nullptr) failure_->Set(Path(key), "missing");
  return found;
}

std::string JsonFields::Path(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

}  // namespace hotbed
