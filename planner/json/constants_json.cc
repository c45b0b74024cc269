#include "planner/json/constants_json.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

struct ConstantField {
  const char* name;
  double CostConstants::*value;
  bool bandwidth;
};

constexpr ConstantField kFields[] = {
    {"gather_row_ns", &CostConstants::gather_row_ns, false},
    {"update_row_ns", &CostConstants::update_row_ns, false},
    {"device_row_ns", &CostConstants::device_row_ns, false},
    {"spill_row_ns", &CostConstants::spill_row_ns, false},
    {"segment_ns", &CostConstants::segment_ns, false},
    {"host_bandwidth", &CostConstants::host_bandwidth, true},
    {"network_bandwidth", &CostConstants::network_bandwidth, true},
    {"spill_bandwidth", &CostConstants::spill_bandwidth, true},
    {"device_bandwidth", &CostConstants::device_bandwidth, true},
    {"device_host_bandwidth", &CostConstants::device_host_bandwidth, true},
};

}  // namespace

void ReadConstantsJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
                       CostConstants* constants) {
  std::vector<absl::string_view> known;
  for (const ConstantField& field : kFields) known.emplace_back(field.name);
  known.emplace_back("about");
  const JsonFields fields(json, path, known, failure);
  for (const ConstantField& field : kFields) {
    double value = constants->*field.value;
    fields.Optional(field.name, &value);
    if (field.bandwidth ? !(value > 0) : !(value >= 0)) {
      failure->Set(fields.Path(field.name),
                   absl::StrCat(value, field.bandwidth ? " is not above 0 bytes a millisecond"
                                                       : " is not 0 ns or more"));
    }
    if (!failure->error) constants->*field.value = value;
  }
  const PlanJson* const about = fields.Find("about");
  if (about != nullptr && !about->is_object()) {
    failure->Set(fields.Path("about"),
                 absl::StrCat("expected an object, found ", about->type_name()));
  }
}

PlanResult<CostConstants> ReadConstants(absl::string_view text) {
  const PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return json.error();
  FieldFailure failure;
  CostConstants constants;
  ReadConstantsJson(json.value(), "constants", &failure, &constants);
  if (failure.error) return *failure.error;
  return constants;
}

PlanJson ConstantsToJson(const CostConstants& constants) {
  PlanJson json = PlanJson::object();
  for (const ConstantField& field : kFields) json[field.name] = constants.*field.value;
  return json;
}

}  // namespace hotbed
