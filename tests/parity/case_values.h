// Arrays of a case: inline as (nested) JSON lists, or the name of a .npy file next to the case.
//
//   "ids": [1, 18446744073709551615, -2]      "weights": "weights.npy"
//
// Ids are 64-bit patterns: negative numbers and files of i4 and i8 are sign-extended, u4 and u8
// stay as they are. Numbers in float arrays may be written "nan", "inf" and "-inf".
#ifndef HOTBED_TESTS_PARITY_CASE_VALUES_H_
#define HOTBED_TESTS_PARITY_CASE_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/json/json_fields.h"
#include "tests/parity/npy.h"

namespace hotbed::parity {

struct FloatArray {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// Reads what stands under `path`; files are looked for in `dir`. The first thing that is wrong is
// kept in `failure`. Thread-compatible.
class CaseValues {
 public:
  CaseValues(std::string dir, FieldFailure* failure) : dir_(std::move(dir)), failure_(failure) {}

  void Read(const PlanJson& json, const std::string& path, FloatArray* out) const;
  void Read(const PlanJson& json, const std::string& path, std::vector<float>* out) const;
  void ReadIds(const PlanJson& json, const std::string& path, std::vector<uint64_t>* out) const;
  // Integers of other meaning: lengths and offsets.
  void ReadLengths(const PlanJson& json, const std::string& path, std::vector<uint32_t>* out) const;
  void ReadOffsets(const PlanJson& json, const std::string& path, std::vector<int64_t>* out) const;

 private:
  NpyArray Load(const PlanJson& json, const std::string& path) const;
  // Integers as 64-bit patterns; `negative` says which of them stand for numbers below 0.
  void ReadIntegers(const PlanJson& json, const std::string& path, std::vector<uint64_t>* out,
                    std::vector<bool>* negative) const;

  const std::string dir_;
  FieldFailure* const failure_;
};

}  // namespace hotbed::parity

#endif  // HOTBED_TESTS_PARITY_CASE_VALUES_H_
