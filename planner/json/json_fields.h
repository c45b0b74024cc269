// Strict reading of one JSON object, field by field. The first error is kept with its path (as in
// tables[3].zipf); later fields read as if they were absent, so that callers need not check after
// each field. Thread-compatible.
//
//   FieldFailure failure;
//   JsonFields fields(json, "tables[3]", {"name", "rows"}, &failure);
//   fields.Required("name", &name);
//   fields.Optional("rows", &rows);
//   if (failure.error) return *failure.error;
//
// Integers: 0 .. 2^63-1 (or the type's limit below it); 1e6 and 5.0 are integers too. Doubles:
// finite, of a size at or under 2^63.
#ifndef HOTBED_PLANNER_JSON_JSON_FIELDS_H_
#define HOTBED_PLANNER_JSON_JSON_FIELDS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "planner/json/parse_json.h"
#include "planner/model/plan_error.h"
#include "planner/model/plan_names.h"

namespace hotbed {

// Keeps the first failure of a reading.
struct FieldFailure {
  std::optional<PlanError> error;
  std::string table;  // the table that is being read, for the error; empty: none

  // Keeps "PATH: message" unless there is a failure already.
  void Set(absl::string_view path, absl::string_view message);
};

// One of `known` with the fewest single-character edits to `word`, the first of equals; `known`
// must not be empty.
absl::string_view NearestOf(absl::string_view word, const std::vector<absl::string_view>& known);

// `word` as messages show it, shortened so that the message stays on one line.
std::string Shown(absl::string_view word);

// Reads a single value; `path` is for the failure. Leaves *out unchanged on failure.
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
              std::string* out);
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, bool* out);
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, uint64_t* out);
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, uint32_t* out);
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, double* out);

template <typename T>
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
              std::optional<T>* out) {
  if (json.is_null()) return;  // null means "off" for a threshold
  T value{};
  ReadJson(json, path, failure, &value);
  if (!failure->error) *out = std::move(value);
}

template <typename T>
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
              std::vector<T>* out) {
  if (!json.is_array()) {
    failure->Set(path, absl::StrCat("expected an array, found ", json.type_name()));
    return;
  }
  out->resize(json.size());
  for (size_t i = 0; i < json.size() && !failure->error; ++i) {
    ReadJson(json[i], absl::StrCat(path, "[", i, "]"), failure, &(*out)[i]);
  }
}

// A value of an enumeration by its word.
template <typename T>
requires std::is_enum_v<T>
void ReadJson(const PlanJson& json, const std::string& path, FieldFailure* failure, T* out) {
  std::string word;
  ReadJson(json, path, failure, &word);
  if (failure->error) return;
  const std::vector<absl::string_view> known(std::begin(kPlanWords<T>), std::end(kPlanWords<T>));
  const auto found = std::find(known.begin(), known.end(), word);
  if (found == known.end()) {
    return failure->Set(
        path, absl::StrCat("unknown value '", Shown(word), "'; the nearest known one is '",
                           NearestOf(word, known), "'"));
  }
  *out = static_cast<T>(found - known.begin());
}

class JsonFields {
 public:
  // Fails unless `json` is an object all of whose keys are among `known`. `json` and `failure` must
  // outlive this.
  JsonFields(const PlanJson& json, std::string path, std::vector<absl::string_view> known,
             FieldFailure* failure);

  // The value of `key`, or null if it is absent or an earlier field failed.
  const PlanJson* Find(absl::string_view key) const;
  // The same, but absence is a failure.
  const PlanJson* FindRequired(absl::string_view key) const;

  template <typename T>
  void Required(absl::string_view key, T* out) const {
    if (const PlanJson* json = FindRequired(key)) ReadJson(*json, Path(key), failure_, out);
  }
  template <typename T>
  void Optional(absl::string_view key, T* out) const {
    if (const PlanJson* json = Find(key)) ReadJson(*json, Path(key), failure_, out);
  }
  // Calls read(json, path) for each item of the array under `key`, until one fails.
  template <typename F>
  void Items(absl::string_view key, bool required, const F& read) const {
    const PlanJson* const json = required ? FindRequired(key) : Find(key);
    if (json == nullptr) return;
    const std::string path = Path(key);
    if (!json->is_array()) {
      failure_->Set(path, absl::StrCat("expected an array, found ", json->type_name()));
      return;
    }
    for (size_t i = 0; i < json->size() && !failure_->error; ++i) {
      read((*json)[i], absl::StrCat(path, "[", i, "]"));
    }
  }

  std::string Path(absl::string_view key) const;

 private:
  const PlanJson& json_;
  const std::string path_;
  FieldFailure* const failure_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_JSON_FIELDS_H_
