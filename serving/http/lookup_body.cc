#include "serving/http/lookup_body.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
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

enum Field {
  kTable,
  kTables,
  kPartial,
  kIds,
  kPooling,
  kOffsets,
  kWeights,
  kType,
  kEncoding,
  kTimeout,
  kStaleness,
  kVersion,
  kPriority,
  kTiers,
};

constexpr uint64_t kLookupTablesMax = 1024;

// In that order.
constexpr BodyField kBodyFields[] = {
    {"table", 0, "a string", R"({"type": "string"})", R"("user")", "The name. Required."},
    {"tables", 1, "an array of 1..1024 objects", R"({"type": "array", "maxItems": 1024})",
     R"([{"table": "user", "ids": [0, 17]}])",
     "Each table with its ids and how they are pooled; with `ids` in base64 or as numbers. "
     "Required."},
    {"partial", 0, "true, false", R"({"type": "boolean", "default": false})", "true",
     "A table that cannot be answered has an error in place of its rows, and the others are "
     "answered; false: the whole answer is an error."},
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
     "latest: the newest rows; current: those of the version that is current of the table's model; "
     "current/MODEL: of that model, where it belongs to several; else the name of a version."},
    {"priority", 0, R"("inference", "batch")",
     R"({"type": "string", "enum": ["inference", "batch"], "default": "inference"})", R"("batch")",
     "batch: the lookup runs when no others wait, and is refused (429) sooner."},
    {"with_tiers", 0, "true, false", R"({"type": "boolean", "default": false})", "true",
     "The answer tells of each id whether memory or disk of the server had its row."},
};
static_assert(std::size(kBodyFields) == kTiers + 1);

constexpr Field kOfOne[] = {kIds,     kPooling,   kOffsets, kWeights,  kType, kEncoding,
                            kTimeout, kStaleness, kVersion, kPriority, kTiers};
constexpr Field kOfSeveral[] = {kTables,    kPartial, kType,     kEncoding, kTimeout,
                                kStaleness, kVersion, kPriority, kTiers};
constexpr Field kOfEach[] = {kTable, kIds, kPooling, kOffsets, kWeights};

std::vector<BodyField> FieldsOf(absl::Span<const Field> fields) {
  std::vector<BodyField> found;
  for (const Field field : fields) found.push_back(kBodyFields[field]);
  return found;
}

// A reader of some of the fields.
class LookupReader : public FieldReader {
 public:
  LookupReader(absl::Span<const Field> which, absl::Span<const BodyField> fields,
               uint64_t entries_max, std::string around = "")
      : FieldReader(fields, entries_max, std::move(around)), which_(which) {}

  const LookupBody& body() const { return body_; }
  bool partial() const { return partial_; }
  // `required` are places among the fields.
  absl::StatusOr<LookupBody> Result(std::initializer_list<int> required) && {
    HOTBED_RETURN_IF_ERROR(Finish(required));
    return std::move(body_);
  }
  using FieldReader::Fail;
  using FieldReader::Finish;

 private:
  bool TakeNumber(const Value& value) override {
    constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
    switch (which_[value.field]) {
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
    switch (which_[field]) {
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
      case kTable:
        body_.table = text;
        return true;
      case kPriority:
        place = PlaceOf(text, {"inference", "batch"});
        body_.batch = place == 1;
        return place.has_value();
      default:
        return false;
    }
  }
  bool TakeBool(int field, bool value) override {
    if (which_[field] != kPartial && which_[field] != kTiers) return false;
    (which_[field] == kTiers ? body_.tiers : partial_) = value;
    return true;
  }

  const absl::Span<const Field> which_;
  LookupBody body_;
  bool partial_ = false;
};

// Passes the parts of an entry of `tables` to a reader of its own, and all others to that of the
// body.
class LookupsReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LookupsReader(uint64_t entries_max)
      : entries_max_(entries_max), body_(kOfSeveral, LookupsFields(), entries_max) {}

  bool null() override { return now().null(); }
  bool boolean(bool value) override { return now().boolean(value); }
  bool binary(binary_t& value) override { return now().binary(value); }
  bool number_integer(number_integer_t value) override { return now().number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return now().number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return now().number_float(value, text);
  }
  bool string(string_t& value) override { return now().string(value); }
  bool key(string_t& name) override {
    if (each_ == nullptr) in_tables_ = name == kBodyFields[kTables].name;
    return now().key(name);
  }
  bool start_object(std::size_t size) override {
    if (!in_tables_ || !in_array_ || each_ != nullptr) return now().start_object(size);
    if (tables_.size() == kLookupTablesMax) return Refuse("longer than 1024 entries");
    uint64_t used = 0;
    for (const LookupBody& table : tables_) {
      used += std::max({table.ids.size(), table.offsets.size(), table.weights.size()});
    }
    each_ = std::make_unique<LookupReader>(kOfEach, LookupsTableFields(),
                                           entries_max_ - std::min(used, entries_max_),
                                           absl::StrCat("tables[", tables_.size(), "]."));
    return each_->start_object(size);
  }
  bool end_object() override {
    if (each_ == nullptr) return body_.end_object();
    absl::StatusOr<LookupBody> table = std::move(*each_).Result({0, 1});
    each_.reset();
    if (!table.ok()) return body_.Fail(table.status());
    tables_.push_back(*std::move(table));
    return true;
  }
  bool start_array(std::size_t size) override {
    if (in_tables_ && each_ == nullptr) in_array_ = true;
    return now().start_array(size);
  }
  bool end_array() override {
    if (each_ == nullptr) in_array_ = false;
    return now().end_array();
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    each_.reset();
    return body_.parse_error(position, token, error);
  }

  absl::StatusOr<LookupsBody> Result() && {
    if (each_ != nullptr) HOTBED_RETURN_IF_ERROR(each_->Finish({}));
    LookupsBody body = {.partial = body_.partial()};
    HOTBED_ASSIGN_OR_RETURN(body.options, std::move(body_).Result({0}));
    if (tables_.empty()) {
      return FieldError("", "tables", "empty", kBodyFields[kTables].allowed);
    }
    for (LookupBody& table : tables_) {
      LookupBody one = body.options;
      one.table = std::move(table.table);
      one.ids = std::move(table.ids);
      one.pooling = table.pooling;
      one.offsets = std::move(table.offsets);
      one.weights = std::move(table.weights);
      body.tables.push_back(std::move(one));
    }
    return body;
  }

 private:
  LookupReader& now() { return each_ != nullptr ? *each_ : body_; }
  bool Refuse(const char* value) {
    return body_.Fail(FieldError("", "tables", value, kBodyFields[kTables].allowed));
  }

  const uint64_t entries_max_;
  LookupReader body_;
  std::unique_ptr<LookupReader> each_;  // of the entry that is being read
  std::vector<LookupBody> tables_;
  bool in_tables_ = false;  // the newest field of the body
  bool in_array_ = false;   // its value has begun
};

template <typename Value>
std::string BytesOf(const std::vector<Value>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

}  // namespace

absl::Span<const BodyField> LookupFields() {
  static const auto* const fields = new std::vector<BodyField>(FieldsOf(kOfOne));
  return *fields;
}
absl::Span<const BodyField> LookupsFields() {
  static const auto* const fields = new std::vector<BodyField>(FieldsOf(kOfSeveral));
  return *fields;
}
absl::Span<const BodyField> LookupsTableFields() {
  static const auto* const fields = new std::vector<BodyField>(FieldsOf(kOfEach));
  return *fields;
}

absl::StatusOr<LookupBody> ParseLookupBody(absl::string_view json, uint64_t entries_max) {
  LookupReader reader(kOfOne, LookupFields(), entries_max);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return std::move(reader).Result({0});
}

absl::StatusOr<LookupsBody> ParseLookupsBody(absl::string_view json, uint64_t entries_max) {
  LookupsReader reader(entries_max);
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
  request.set_with_tiers(body.tiers);
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
