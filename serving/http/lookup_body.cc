#include "serving/http/lookup_body.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/field_error.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "proto/served_bags.h"
#include "serving/http/field_reader.h"

namespace hotbed {
namespace {

// In the order of LookupReader::Field.
constexpr BodyField kBodyFields[] = {
    {"ids", 1, "an array of integers 0..18446744073709551615, or a string in base64",
     R"({"oneOf": [{"type": "array", "items": {"type": "integer", "minimum": 0,
        "maximum": 18446744073709551615}}, {"type": "string", "format": "byte"}]})",
     "[0, 17, 999999]",
     "The ids of rows, or their little-endian 64-bit bytes in base64. Required."},
    {"pooling", 0, R"("none", "sum", "mean", "max")",
     R"({"type": "string", "enum": ["none", "sum", "mean", "max"], "default": "none"})",
     R"("mean")", "How the rows of each bag become one row; none: a row per id."},
    {"offsets", 1, "an array of integers 0..4294967295",
     R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 4294967295}})",
     "[0, 2]",
     "With pooling: where each bag begins among the ids. The first is 0, none is less than the one "
     "before, and the last bag ends with the ids."},
    {"weights", 1, "an array of finite numbers",
     R"({"type": "array", "items": {"type": "number"}})", "[0.5, 2, 1]",
     "With pooling sum and mean: one per id. A mean is divided by the sum of its bag's."},
    {"type", 0, R"("fp32", "fp16", "bf16", "int8")",
     R"({"type": "string", "enum": ["fp32", "fp16", "bf16", "int8"], "default": "fp32"})",
     R"("fp16")",
     "The type of values in base64 and octets, and to which arrays of numbers are rounded. A row "
     "of int8 has a byte per element, then scale and bias in fp32: value = byte * scale + bias."},
    {"encoding", 0, R"("array", "base64")",
     R"({"type": "string", "enum": ["array", "base64"], "default": "array"})", R"("base64")",
     "Of values and exists in an answer in JSON."},
    {"timeout_ms", 0, "1..86400000",
     R"({"type": "integer", "minimum": 1, "maximum": 86400000, "default": 1000})", "50",
     "The answer is an error (504) if it is not there by then, counted from the request's end."},
    {"staleness_max_ms", 0, "0..4294967295",
     R"({"type": "integer", "minimum": 0, "maximum": 4294967295, "default": 0})", "30000",
     "A copy that is older refuses (503); 0: only beyond the limit of the table, if it has one."},
    {"version", 0, "a string", R"({"type": "string", "default": "latest"})", R"("current")",
     "latest: the newest rows; current: those of the version that is current; else the name of a "
     "version."},
};

class LookupReader final : public FieldReader {
 public:
  explicit LookupReader(uint64_t entries_max) : FieldReader(kBodyFields, entries_max) {}

  absl::StatusOr<LookupBody> Result() && {
    HOTBED_RETURN_IF_ERROR(Finish({kIds}));
    return std::move(body_);
  }

 private:
  // In the order of the fields.
  enum Field {
    kIds,
    kPooling,
    kOffsets,
    kWeights,
    kType,
    kEncoding,
    kTimeout,
    kStaleness,
    kVersion,
  };

  bool TakeNumber(const Value& value) override {
    constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
    switch (value.field) {
      case kIds:
        if (value.integer.has_value()) body_.ids.push_back(*value.integer);
        return value.integer.has_value();
      case kOffsets:
        if (value.Within(0, kU32Max))
          body_.offsets.push_back(static_cast<uint32_t>(*value.integer));
        return value.Within(0, kU32Max);
      case kWeights:
        body_.weights.push_back(static_cast<float>(value.number));
        return std::isfinite(body_.weights.back());
      case kTimeout:
        if (value.Within(1, kBodyTimeoutMsMax))
          body_.timeout_ms = static_cast<uint32_t>(*value.integer);
        return value.Within(1, kBodyTimeoutMsMax);
      case kStaleness:
        if (value.Within(0, kU32Max))
          body_.staleness_ms_max = static_cast<uint32_t>(*value.integer);
        return value.Within(0, kU32Max);
      default:
        return false;
    }
  }
  bool TakeText(int field, const std::string& text) override {
    std::optional<int> place;
    switch (field) {
      case kIds:
        return TakeBase64(field, text, &body_.ids);
      case kPooling:
        place = PlaceOf(text, {"none", "sum", "mean", "max"});
        body_.pooling = static_cast<v1::ServedPooling>(place.value_or(0));
        return place.has_value();
      case kType:
        place = PlaceOf(text, {"fp32", "fp16", "bf16", "int8"});
        body_.type = static_cast<RowType>(place.value_or(0));
        return place.has_value();
      case kEncoding:
        place = PlaceOf(text, {"array", "base64"});
        body_.base64 = place == 1;
        return place.has_value();
      case kVersion:
        body_.version = text;
        return true;
      default:
        return false;
    }
  }

  LookupBody body_;
};

template <typename Value>
std::string BytesOf(const std::vector<Value>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

}  // namespace

absl::Span<const BodyField> LookupFields() { return kBodyFields; }

absl::StatusOr<LookupBody> ParseLookupBody(absl::string_view json, uint64_t entries_max) {
  LookupReader reader(entries_max);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return std::move(reader).Result();
}

absl::StatusOr<v1::ServingLookupRequest> RequestOf(const LookupBody& body, uint32_t table,
                                                   absl::string_view name) {
  const std::string thing = absl::StrCat("table \"", name, "\"");
  if (!body.weights.empty() && body.weights.size() != body.ids.size()) {
    return FieldError(thing, "weights", absl::StrCat(body.weights.size(), " entries long"),
                      absl::StrCat(body.ids.size(), ", one per id, or none"));
  }
  v1::ServingLookupRequest request;
  v1::ServingLookupTable& asked = *request.add_tables();
  asked.set_table(table);
  asked.set_ids(static_cast<uint32_t>(body.ids.size()));
  asked.set_pooling(body.pooling);
  asked.set_bags(static_cast<uint32_t>(body.offsets.size()));
  asked.set_weighted(!body.weights.empty());
  request.set_row_type(ToProto(body.type));
  request.set_staleness_ms_max(body.staleness_ms_max);
  request.set_ids(BytesOf(body.ids));
  request.set_offsets(BytesOf(body.offsets));
  request.set_weights(BytesOf(body.weights));
  ServedBags bags = {.pooling = body.pooling, .ids = asked.ids(), .bags = asked.bags()};
  bags.offsets = request.offsets().data();
  if (asked.weighted()) bags.weights = request.weights().data();
  HOTBED_RETURN_IF_ERROR(CheckServedBags(thing, bags));
  return request;
}

}  // namespace hotbed
