// What a case gave: one JSON object, and its arrays, as .npy files, inline, or both.
//
// An array stands in the JSON as the name of its file, or inline as (nested) lists in which what
// JSON cannot write is "nan", "inf" or "-inf". Thread-compatible.
#ifndef HOTBED_TESTS_PARITY_CASE_RESULT_H_
#define HOTBED_TESTS_PARITY_CASE_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "planner/json/parse_json.h"
#include "tests/parity/npy.h"

namespace hotbed::parity {

class CaseResult {
 public:
  // No `dir`: no files, all arrays are inline.
  CaseResult(std::string dir, bool inlined) : dir_(std::move(dir)), inlined_(inlined) {}

  // The array as it stands in the JSON; its file, if any, is STEM.npy. A file that cannot be
  // written is in status().
  template <typename T>
  PlanJson Array(absl::string_view stem, std::vector<uint64_t> shape, absl::Span<const T> values) {
    return Array(stem, MakeNpy(std::move(shape), values));
  }

  // Writes result.json, where there is a directory.
  void WriteJson(const PlanJson& json);

  const absl::Status& status() const { return status_; }

 private:
  PlanJson Array(absl::string_view stem, const NpyArray& array);
  void Write(const std::string& name, absl::string_view content);

  const std::string dir_;
  const bool inlined_;
  absl::Status status_;
};

// A name as part of a file's: what is not a letter, digit, `_`, `-` or `.` is %XX.
std::string InFileName(absl::string_view name);

PlanJson ErrorJson(const absl::Status& status);  // {"code": "INVALID_ARGUMENT", "message": "..."}

}  // namespace hotbed::parity

#endif  // HOTBED_TESTS_PARITY_CASE_RESULT_H_
