#include "tests/parity/case_values.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"

namespace hotbed::parity {
namespace {

// One number of a float array: a JSON number, or the word of what JSON cannot write.
bool NumberOf(const PlanJson& json, float* out) {
  if (json.is_number()) {
    *out = static_cast<float>(json.get<double>());
    return true;
  }
  if (!json.is_string()) return false;
  const std::string word = json.get<std::string>();
  const float infinity = std::numeric_limits<float>::infinity();
  if (word == "nan") {
    *out = std::numeric_limits<float>::quiet_NaN();
  } else if (word == "inf" || word == "-inf") {
    *out = word[0] == '-' ? -infinity : infinity;
  } else {
    return false;
  }
  return true;
}

// Appends the numbers of nested lists; all lists of one depth must have the same length.
bool Flatten(const PlanJson& json, size_t depth, FloatArray* out) {
  if (!json.is_array()) {
    out->values.push_back(0);
    return depth == out->shape.size() && NumberOf(json, &out->values.back());
  }
  if (depth == out->shape.size()) {
    if (!out->values.empty()) return false;  // deeper than the first number was
    out->shape.push_back(json.size());
  }
  if (json.size() != out->shape[depth]) return false;
  for (const PlanJson& item : json) {
    if (!Flatten(item, depth + 1, out)) return false;
  }
  return true;
}

template <typename T>
void Widen(const NpyArray& array, std::vector<uint64_t>* out, std::vector<bool>* negative) {
  for (const T value : NpyValues<T>(array)) {
    out->push_back(static_cast<uint64_t>(static_cast<int64_t>(value)));
    negative->push_back(std::numeric_limits<T>::is_signed && value < T{0});
  }
}

}  // namespace

NpyArray CaseValues::Load(const PlanJson& json, const std::string& path) const {
  const std::string name = json.get<std::string>();
  const std::string file = name.empty() || name[0] == '/' ? name : absl::StrCat(dir_, "/", name);
  const absl::StatusOr<std::string> bytes = FileSystem::Real()->ReadAll(file);
  if (!bytes.ok()) {
    failure_->Set(path, absl::StrCat("cannot read ", file, ": ", bytes.status().message()));
    return {};
  }
  absl::StatusOr<NpyArray> array = ParseNpy(*bytes);
  if (!array.ok()) {
    failure_->Set(path, absl::StrCat(file, " is ", array.status().message()));
    return {};
  }
  return *std::move(array);
}

void CaseValues::Read(const PlanJson& json, const std::string& path, FloatArray* out) const {
  if (failure_->error) return;
  if (!json.is_string()) {
    if (json.is_array() && Flatten(json, 0, out)) return;
    failure_->Set(path,
                  "expected the name of a .npy file or (nested) lists of numbers, all lists "
                  "of one depth of the same length");
    return;
  }
  const NpyArray array = Load(json, path);
  if (failure_->error) return;
  out->shape = array.shape;
  if (array.type == NpyType::kF4) {
    out->values = NpyValues<float>(array);
  } else if (array.type == NpyType::kF8) {
    for (const double value : NpyValues<double>(array)) {
      out->values.push_back(static_cast<float>(value));
    }
  } else {
    failure_->Set(path, absl::StrCat(Shown(json.get<std::string>()), " has elements of ",
                                     NpyTypeName(array.type), ", expected f4 or f8"));
  }
}

void CaseValues::Read(const PlanJson& json, const std::string& path,
                      std::vector<float>* out) const {
  FloatArray array;
  Read(json, path, &array);
  *out = std::move(array.values);
}

void CaseValues::ReadIntegers(const PlanJson& json, const std::string& path,
                              std::vector<uint64_t>* out, std::vector<bool>* negative) const {
  if (failure_->error) return;
  if (json.is_string()) {
    const NpyArray array = Load(json, path);
    if (failure_->error) return;
    switch (array.type) {
      case NpyType::kI4:
        return Widen<int32_t>(array, out, negative);
      case NpyType::kI8:
        return Widen<int64_t>(array, out, negative);
      case NpyType::kU4:
        return Widen<uint32_t>(array, out, negative);
      case NpyType::kU8:
        return Widen<uint64_t>(array, out, negative);
      default:
        failure_->Set(path, absl::StrCat(Shown(json.get<std::string>()), " has elements of ",
                                         NpyTypeName(array.type),
                                         ", expected i4, i8, u4 or u8: floats lose ids"));
        return;
    }
  }
  if (!json.is_array()) {
    failure_->Set(path, absl::StrCat("expected a list of integers or the name of a .npy file, "
                                     "found ",
                                     json.type_name()));
    return;
  }
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_number_integer()) {
      failure_->Set(absl::StrCat(path, "[", i, "]"),
                    absl::StrCat("expected an integer, found ", Shown(json[i].dump())));
      return;
    }
    out->push_back(json[i].is_number_unsigned() ? json[i].get<uint64_t>()
                                                : static_cast<uint64_t>(json[i].get<int64_t>()));
    negative->push_back(!json[i].is_number_unsigned() && json[i].get<int64_t>() < 0);
  }
}

void CaseValues::ReadIds(const PlanJson& json, const std::string& path,
                         std::vector<uint64_t>* out) const {
  std::vector<bool> negative;
  ReadIntegers(json, path, out, &negative);
}

void CaseValues::ReadLengths(const PlanJson& json, const std::string& path,
                             std::vector<uint32_t>* out) const {
  std::vector<uint64_t> wide;
  std::vector<bool> negative;
  ReadIntegers(json, path, &wide, &negative);
  for (size_t i = 0; i < wide.size() && !failure_->error; ++i) {
    if (wide[i] > std::numeric_limits<uint32_t>::max()) {
      failure_->Set(absl::StrCat(path, "[", i, "]"), "a length is 0..4294967295");
      return;
    }
    out->push_back(static_cast<uint32_t>(wide[i]));
  }
}

void CaseValues::ReadOffsets(const PlanJson& json, const std::string& path,
                             std::vector<int64_t>* out) const {
  std::vector<uint64_t> wide;
  std::vector<bool> negative;
  ReadIntegers(json, path, &wide, &negative);
  for (size_t i = 0; i < wide.size() && !failure_->error; ++i) {
    const int64_t value = static_cast<int64_t>(wide[i]);
    if ((value < 0) != negative[i]) {
      failure_->Set(absl::StrCat(path, "[", i, "]"), "an offset is below 2^63");
      return;
    }
    out->push_back(value);
  }
}

}  // namespace hotbed::parity
