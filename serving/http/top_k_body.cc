#include "serving/http/top_k_body.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/field_error.h"
#include "common/status_macros.h"
#include "serving/http/field_reader.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kAnyId = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kRowBytes = 56;     // of an answer: id, score and commas
constexpr uint64_t kVectorBytes = 64;  // likewise

// In the order of TopKReader::Field.
constexpr BodyField kTopKFields[] = {
    {"vectors", 2, "an array of vectors, which are arrays of finite numbers, or a string in base64",
     R"({"oneOf": [{"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        {"type": "string", "format": "byte"}]})",
     "[[0.5, -1, 2]]",
     "The vectors, each with as many elements as a row, or their little-endian fp32 bytes in "
     "base64. At most 1024. Required."},
    {"k", 0, "1..16384", R"({"type": "integer", "minimum": 1, "maximum": 16384, "default": 10})",
     "3", "Rows per vector; k times the vectors is at most 262144."},
    {"metric", 0, R"("dot", "cosine", "l2")",
     R"({"type": "string", "enum": ["dot", "cosine", "l2"], "default": "dot"})", R"("cosine")",
     "dot and cosine: the largest first; l2, the square of the distance: the smallest first."},
    {"only_ids", 1, "an array of integers 0..18446744073709551615, or a string in base64",
     R"({"oneOf": [{"type": "array", "items": {"type": "integer", "minimum": 0,
        "maximum": 18446744073709551615}}, {"type": "string", "format": "byte"}]})",
     "[0, 17, 999999]", "Only these rows; as ids of a lookup, at most 1000000."},
    {"first_id", 0, "0..18446744073709551615",
     R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615, "default": 0})", "10",
     "Only rows from this id on."},
    {"last_id", 0, "0..18446744073709551615",
     R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})", "1000",
     "Only rows up to this id."},
    {"timeout_ms", 0, "1..86400000",
     R"({"type": "integer", "minimum": 1, "maximum": 86400000, "default": 10000})", "500",
     "The answer is an error (504) if it is not there by then, counted from the request's end."},
    {"staleness_max_ms", 0, "0..4294967295",
     R"({"type": "integer", "minimum": 0, "maximum": 4294967295, "default": 0})", "30000",
     "As of a lookup."},
    {"version", 0, "a string", R"({"type": "string", "default": "latest"})", R"("current")",
     "As of a lookup."},
};

constexpr ReplyField kTopKReplyFields[] = {
    {"table", R"({"type": "string"})", "The table's name."},
    {"server", R"({"type": "string"})", "The serving server that answers."},
    {"version", R"({"type": "string"})",
     "The name of the version whose rows these are; latest: the newest rows."},
    {"age_ms", R"({"type": "integer"})",
     "All pushes that were acknowledged longer ago are in the rows; 0 of a version."},
    {"nearest",
     R"({"type": "array", "items": {"type": "object", "properties": {
        "ids": {"type": "array", "items": {"type": "integer"}},
        "scores": {"type": "array", "items": {"type": "number", "nullable": true}}}}})",
     "Per vector, the nearest rows first. A score that is not finite is null."},
};

class TopKReader final : public FieldReader {
 public:
  explicit TopKReader(uint64_t entries_max) : FieldReader(kTopKFields, entries_max) {}

  absl::StatusOr<TopKBody> Result() && {
    HOTBED_RETURN_IF_ERROR(Finish({kVectors}));
    return std::move(body_);
  }

 private:
  // In the order of the fields.
  enum Field {
    kVectors,
    kK,
    kMetric,
    kOnlyIds,
    kFirstId,
    kLastId,
    kTimeout,
    kStaleness,
    kVersion,
  };

  static bool TakeSmall(const Value& value, uint64_t least, uint64_t most, uint32_t* out) {
    if (!value.Within(least, most)) return false;
    *out = static_cast<uint32_t>(*value.integer);
    return true;
  }

  bool TakeNumber(const Value& value) override {
    switch (value.field) {
      case kVectors:
        body_.vectors.push_back(static_cast<float>(value.number));
        return std::isfinite(body_.vectors.back());
      case kK:
        return TakeSmall(value, 1, 16'384, &body_.k);
      case kOnlyIds:
        if (value.integer.has_value()) body_.only_ids.push_back(*value.integer);
        return value.integer.has_value();
      case kFirstId:
        body_.first_id = value.integer.value_or(0);
        return value.integer.has_value();
      case kLastId:
        body_.last_id = value.integer.value_or(kAnyId);
        return value.integer.has_value();
      case kTimeout:
        return TakeSmall(value, 1, kBodyTimeoutMsMax, &body_.timeout_ms);
      case kStaleness:
        return TakeSmall(value, 0, kU32Max, &body_.staleness_ms_max);
      default:
        return false;
    }
  }
  bool TakeText(int field, const std::string& text) override {
    switch (field) {
      case kVectors:
        return TakeBase64(field, text, &body_.vectors);
      case kOnlyIds:
        return TakeBase64(field, text, &body_.only_ids);
      case kMetric: {
        const std::optional<int> place = PlaceOf(text, {"dot", "cosine", "l2"});
        body_.metric = static_cast<v1::TopKMetric>(place.value_or(0));
        return place.has_value();
      }
      case kVersion:
        body_.version = text;
        return true;
      default:
        return false;
    }
  }
  void BeginField(int field) override { body_.only |= field == kOnlyIds; }
  void EndInner(int, uint64_t entries) override { body_.vector_lengths.push_back(entries); }

  TopKBody body_;
};

template <typename T>
T ValueAt(const std::string& bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

absl::Span<const BodyField> TopKFields() { return kTopKFields; }
absl::Span<const ReplyField> TopKReplyFields() { return kTopKReplyFields; }

absl::StatusOr<TopKBody> ParseTopKBody(absl::string_view json, uint64_t entries_max) {
  TopKReader reader(entries_max);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return std::move(reader).Result();
}

absl::StatusOr<v1::ServingTopKRequest> TopKRequestOf(const TopKBody& body, uint32_t table,
                                                     uint32_t dim, absl::string_view name) {
  for (size_t v = 0; v < body.vector_lengths.size(); ++v) {
    if (body.vector_lengths[v] == dim) continue;
    return FieldError(absl::StrCat("table \"", name, "\""), absl::StrCat("vectors[", v, "]"),
                      absl::StrCat(body.vector_lengths[v], " numbers long"),
                      absl::StrCat(dim, ", the dim of the table"));
  }
  v1::ServingTopKRequest request;
  request.set_table(table);
  request.set_staleness_ms_max(body.staleness_ms_max);
  request.set_metric(body.metric);
  request.set_k(body.k);
  request.set_vectors(body.vectors.data(), body.vectors.size() * sizeof(float));
  request.set_first_id(body.first_id);
  request.set_last_id(body.last_id);
  request.set_only_ids(body.only);
  request.set_ids(body.only_ids.data(), body.only_ids.size() * sizeof(uint64_t));
  return request;
}

uint64_t TopKResponseBytes(const TopKBody& body, uint32_t dim) {
  const uint64_t vectors = body.vectors.size() / dim;
  return 512 + vectors * (kVectorBytes + body.k * kRowBytes);
}

HttpResponse TopKResponse(const v1::ServingTopKReply& reply, absl::string_view table,
                          absl::string_view server, absl::string_view version) {
  const Json head = {{"table", table},
                     {"server", server},
                     {"version", version.empty() ? "latest" : version},
                     {"age_ms", reply.table().age_ms()}};
  HttpResponse response = {.type = "application/json",
                           .body = head.dump(-1, ' ', false, Json::error_handler_t::replace)};
  std::string* const text = &response.body;
  text->pop_back();  // the brace
  text->append(",\"nearest\":[");
  uint64_t first = 0;
  for (int v = 0; v < reply.counts_size(); ++v) {
    const uint64_t end = first + reply.counts(v);
    text->append(v == 0 ? "{\"ids\":[" : ",{\"ids\":[");
    for (uint64_t i = first; i < end; ++i) {
      absl::StrAppend(text, i == first ? "" : ",", ValueAt<uint64_t>(reply.ids(), i));
    }
    text->append("],\"scores\":[");
    for (uint64_t i = first; i < end; ++i) {
      if (i > first) text->push_back(',');
      AppendNumber(ValueAt<double>(reply.scores(), i), text);
    }
    text->append("]}");
    first = end;
  }
  text->append("]}\n");
  return response;
}

}  // namespace hotbed
