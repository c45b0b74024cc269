#include "serving/http/lookup_body.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/field_error.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "proto/convert.h"
#include "proto/served_bags.h"

namespace hotbed {
namespace {

enum Field { kIds, kPooling, kOffsets, kWeights, kType, kEncoding, kTimeout, kStaleness };

constexpr uint32_t kTimeoutMsMax = 24 * 3600 * 1000;
constexpr size_t kTextMax = 60;  // of a value or name that an error shows

// In the order of Field.
constexpr LookupField kBodyFields[] = {
    {"ids",
     R"({"oneOf": [{"type": "array", "items": {"type": "integer", "minimum": 0,
        "maximum": 18446744073709551615}}, {"type": "string", "format": "byte"}]})",
     "[0, 17, 999999]",
     "The ids of rows, or their little-endian 64-bit bytes in base64. Required."},
    {"pooling", R"({"type": "string", "enum": ["none", "sum", "mean", "max"], "default": "none"})",
     R"("mean")", "How the rows of each bag become one row; none: a row per id."},
    {"offsets",
     R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 4294967295}})",
     "[0, 2]",
     "With pooling: where each bag begins among the ids. The first is 0, none is less than the one "
     "before, and the last bag ends with the ids."},
    {"weights", R"({"type": "array", "items": {"type": "number"}})", "[0.5, 2, 1]",
     "With pooling sum and mean: one per id. A mean is divided by the sum of its bag's."},
    {"type", R"({"type": "string", "enum": ["fp32", "fp16", "bf16", "int8"], "default": "fp32"})",
     R"("fp16")",
     "The type of values in base64 and octets, and to which arrays of numbers are rounded. A row "
     "of int8 has a byte per element, then scale and bias in fp32: value = byte * scale + bias."},
    {"encoding", R"({"type": "string", "enum": ["array", "base64"], "default": "array"})",
     R"("base64")", "Of values and exists in an answer in JSON."},
    {"timeout_ms", R"({"type": "integer", "minimum": 1, "maximum": 86400000, "default": 1000})",
     "50",
     "The answer is an error (504) if it is not there by then, counted from the request's end."},
    {"staleness_max_ms",
     R"({"type": "integer", "minimum": 0, "maximum": 4294967295, "default": 0})", "30000",
     "A copy that is older refuses (503); 0: only beyond the limit of the table, if it has one."},
};

// Reads a body as the JSON parser meets its parts; each method returns whether to go on. No tree is
// built: ids need 8 bytes each.
class LookupReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LookupReader(uint64_t entries_max) : entries_max_(entries_max) {}

  absl::StatusOr<LookupBody> Result() && {
    HOTBED_RETURN_IF_ERROR(error_);
    if (!seen_.contains(kIds)) {
      return FieldError("", "ids", "missing", "an array of ids, or a string in base64");
    }
    return std::move(body_);
  }

  bool null() override { return Other("null"); }
  bool boolean(bool value) override { return Other(value ? "true" : "false"); }
  bool binary(binary_t&) override { return Other("binary"); }
  bool number_integer(number_integer_t value) override {
    return Number(std::nullopt, static_cast<double>(value), absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(value, static_cast<double>(value), absl::StrCat(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return Number(std::nullopt, value, text);
  }
  bool string(string_t& value) override {
    if (!TakesValue() || in_array_) return Other(absl::StrCat("\"", Cut(value), "\""));
    switch (*field_) {
      case kIds:
        return Base64Ids(value);
      case kPooling:
        return OneOf(value, {"none", "sum", "mean", "max"},
                     [this](int at) { body_.pooling = static_cast<v1::ServedPooling>(at); });
      case kType:
        return OneOf(value, {"fp32", "fp16", "bf16", "int8"},
                     [this](int at) { body_.type = static_cast<RowType>(at); });
      case kEncoding:
        return OneOf(value, {"array", "base64"}, [this](int at) { body_.base64 = at == 1; });
      default:
        return Other(absl::StrCat("\"", Cut(value), "\""));
    }
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) return Other("an object");
    depth_ = 1;
    return true;
  }
  bool key(string_t& name) override {
    for (size_t at = 0; at < std::size(kBodyFields); ++at) {
      if (name != kBodyFields[at].name) continue;
      field_ = static_cast<Field>(at);
      if (seen_.insert(*field_).second) return true;
      return Fail(FieldError("", name, "there twice", "once"));
    }
    return Fail(
        FieldError("", "a field", absl::StrCat("\"", Cut(name), "\""),
                   absl::StrJoin(kBodyFields, ", ", [](std::string* out, const LookupField& field) {
                     out->append(field.name);
                   })));
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override {
    if (!TakesValue() || in_array_ ||
        (*field_ != kIds && *field_ != kOffsets && *field_ != kWeights)) {
      return Other("an array");
    }
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    absl::string_view text = error.what();
    text = text.substr(std::min(text.size(), text.find("] ") + 2));
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("the body is no JSON, at byte ", position, ": ", text.substr(0, 200))));
  }

 private:
  bool Fail(absl::Status error) {
    error_ = std::move(error);
    return false;
  }
  static std::string Cut(absl::string_view text) {
    return absl::StrCat(absl::CEscape(text.substr(0, kTextMax)),
                        text.size() > kTextMax ? "..." : "");
  }
  bool TakesValue() const { return depth_ > 0 && field_.has_value(); }

  size_t Entries() const {
    return *field_ == kIds       ? body_.ids.size()
           : *field_ == kOffsets ? body_.offsets.size()
                                 : body_.weights.size();
  }
  std::string Here() const {
    if (!TakesValue()) return "the body";
    const char* const name = kBodyFields[*field_].name;
    return in_array_ ? absl::StrCat(name, "[", Entries(), "]") : std::string(name);
  }
  // Refuses a value where it stands.
  bool Other(absl::string_view value) {
    static constexpr const char* kAllowed[] = {
        "an array of integers 0..18446744073709551615, or a string in base64",
        "\"none\", \"sum\", \"mean\", \"max\"",
        "an array of integers 0..4294967295",
        "an array of finite numbers",
        "\"fp32\", \"fp16\", \"bf16\", \"int8\"",
        "\"array\", \"base64\"",
        "1..86400000",
        "0..4294967295"};
    return Fail(FieldError("", Here(), value, TakesValue() ? kAllowed[*field_] : "an object"));
  }

  // `integer`: not negative, and exact.
  bool Number(std::optional<uint64_t> integer, double value, absl::string_view text) {
    if (!TakesValue()) return Other(Cut(text));
    const auto within = [&](uint64_t least, uint64_t most) {
      return integer.has_value() && *integer >= least && *integer <= most;
    };
    constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
    if (in_array_ && Entries() >= entries_max_) {
      return Fail(FieldError("", kBodyFields[*field_].name,
                             absl::StrCat("longer than ", entries_max_, " entries"),
                             absl::StrCat("0..", entries_max_, " entries")));
    }
    if (*field_ == kIds && in_array_ && integer.has_value()) {
      body_.ids.push_back(*integer);
    } else if (*field_ == kOffsets && in_array_ && within(0, kU32Max)) {
      body_.offsets.push_back(static_cast<uint32_t>(*integer));
    } else if (*field_ == kWeights && in_array_ && std::isfinite(static_cast<float>(value))) {
      body_.weights.push_back(static_cast<float>(value));
    } else if (*field_ == kTimeout && within(1, kTimeoutMsMax)) {
      body_.timeout_ms = static_cast<uint32_t>(*integer);
    } else if (*field_ == kStaleness && within(0, kU32Max)) {
      body_.staleness_ms_max = static_cast<uint32_t>(*integer);
    } else {
      return Other(Cut(text));
    }
    return true;
  }

  bool Base64Ids(absl::string_view text) {
    std::string bytes;
    if (!absl::Base64Unescape(text, &bytes) || bytes.size() % sizeof(uint64_t) != 0) {
      return Fail(
          FieldError("", "ids", absl::StrCat("\"", Cut(text), "\""), "base64 of 8 bytes per id"));
    }
    if (bytes.size() / sizeof(uint64_t) > entries_max_) {
      return Fail(FieldError("", "ids", absl::StrCat(bytes.size() / sizeof(uint64_t), " ids long"),
                             absl::StrCat("0..", entries_max_, " entries")));
    }
    body_.ids.resize(bytes.size() / sizeof(uint64_t));
    if (!bytes.empty()) std::memcpy(body_.ids.data(), bytes.data(), bytes.size());
    return true;
  }

  template <typename Take>
  bool OneOf(absl::string_view value, std::initializer_list<const char*> names, Take take) {
    int at = 0;
    for (const char* const name : names) {
      if (value == name) {
        take(at);
        return true;
      }
      ++at;
    }
    return Other(absl::StrCat("\"", Cut(value), "\""));
  }

  const uint64_t entries_max_;
  LookupBody body_;
  absl::Status error_;
  std::set<Field> seen_;
  std::optional<Field> field_;  // whose value comes
  int depth_ = 0;
  bool in_array_ = false;
};

template <typename Value>
std::string BytesOf(const std::vector<Value>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

}  // namespace

absl::Span<const LookupField> LookupFields() { return kBodyFields; }

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
