#include "tests/parity/case_result.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/file_system.h"

namespace hotbed::parity {
namespace {

template <typename T>
PlanJson NumberJson(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    return static_cast<double>(value);
  } else {
    return value;
  }
}

// Elements [begin, begin + product of shape from `depth` on) as nested lists.
template <typename T>
PlanJson Nested(const std::vector<T>& values, const std::vector<uint64_t>& shape, size_t depth,
                size_t* next) {
  if (depth == shape.size()) return NumberJson(values[(*next)++]);
  PlanJson list = PlanJson::array();
  for (uint64_t i = 0; i < shape[depth]; ++i) {
    list.push_back(Nested(values, shape, depth + 1, next));
  }
  return list;
}

template <typename T>
PlanJson Lists(const NpyArray& array) {
  size_t next = 0;
  return Nested(NpyValues<T>(array), array.shape, 0, &next);
}

PlanJson InlineJson(const NpyArray& array) {
  switch (array.type) {
    case NpyType::kF4:
      return Lists<float>(array);
    case NpyType::kF8:
      return Lists<double>(array);
    case NpyType::kI4:
      return Lists<int32_t>(array);
    case NpyType::kI8:
      return Lists<int64_t>(array);
    case NpyType::kU4:
      return Lists<uint32_t>(array);
    case NpyType::kU8:
      return Lists<uint64_t>(array);
  }
  return nullptr;
}

}  // namespace

void CaseResult::Write(const std::string& name, absl::string_view content) {
  if (!status_.ok()) return;
  status_ = FileSystem::Real()->WriteAtomically(absl::StrCat(dir_, "/", name), content);
}

PlanJson CaseResult::Array(absl::string_view stem, const NpyArray& array) {
  const std::string name = absl::StrCat(stem, ".npy");
  if (!dir_.empty()) Write(name, FormatNpy(array));
  return dir_.empty() || inlined_ ? InlineJson(array) : PlanJson(name);
}

void CaseResult::WriteJson(const PlanJson& json) {
  if (!dir_.empty()) Write("result.json", json.dump(1) + "\n");
}

std::string InFileName(absl::string_view name) {
  std::string out;
  for (const char c : name) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '_' || c == '-' || c == '.') {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", byte);
    }
  }
  return out;
}

PlanJson ErrorJson(const absl::Status& status) {
  return {{"code", absl::StatusCodeToString(status.code())},
          {"message", std::string(status.message())}};
}

}  // namespace hotbed::parity
