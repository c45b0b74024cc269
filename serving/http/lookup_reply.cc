#include "serving/http/lookup_reply.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/field_error.h"
#include "nlohmann/json.hpp"
#include "row_math/quantize.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kNumberBytes = 16;  // "-1.17549435e-38,"
constexpr uint64_t kFlagBytes = 6;     // "false,"
constexpr uint64_t kTierBytes = 9;     // "memory" with its quotes and a comma
constexpr const char* kTierNames[] = {"none", "memory", "disk", "device"};
constexpr uint64_t kFrameBytes = 512;  // all else

constexpr ReplyField kReplyFields[] = {
    {"table", R"({"type": "string"})", "The table's name."},
    {"server", R"({"type": "string"})", "The serving server that answers."},
    {"version", R"({"type": "string"})",
     "The name of the version whose rows these are; latest: the newest rows."},
    {"age_ms", R"({"type": "integer"})",
     "All pushes that were acknowledged longer ago are in the rows; 0 of a version."},
    {"type", R"({"type": "string", "enum": ["fp32", "fp16", "bf16", "int8"]})", "As asked for."},
    {"dim", R"({"type": "integer"})", "Elements of a row."},
    {"rows", R"({"type": "integer"})", "The number of rows: of ids, or of bags."},
    {"values",
     R"({"oneOf": [{"type": "array", "items": {"type": "array", "items": {"type": "number",
        "nullable": true}}}, {"type": "string", "format": "byte"}]})",
     "The rows, in order, each an array of numbers, of which null is one that is not finite; or "
     "all of them in base64, little-endian, in the type that was asked for."},
    {"exists",
     R"({"oneOf": [{"type": "array", "items": {"type": "boolean"}},
        {"type": "string", "format": "byte"}]})",
     "Whether there is a row of the id, by id; one that is not there reads as zeros. In base64: a "
     "byte per id, 1 or 0."},
    {"tiers",
     R"({"oneOf": [{"type": "array", "items": {"type": "string",
        "enum": ["none", "memory", "disk", "device"]}}, {"type": "string", "format": "byte"}]})",
     "With with_tiers alone: where the server had the row of each id; none: there is no row. In "
     "base64: a byte per id, 0, 1, 2 or 3."},
};

constexpr ReplyField kPartFields[] = {
    {"known",
     R"({"oneOf": [{"type": "array", "items": {"type": "boolean"}},
        {"type": "string", "format": "byte"}]})",
     "Whether each row of values is known; one that is not is zeros. In base64: a byte per row, 1 "
     "or 0."},
    {"error", R"({"type": "object"})", "Why some parts were not answered, as in Error."},
};

constexpr ReplyField kOctetHeaders[] = {
    {"Hotbed-Type", R"({"type": "string"})", "The type of values, with octets."},
    {"Hotbed-Dim", R"({"type": "integer"})", "Elements of a row, with octets."},
    {"Hotbed-Rows", R"({"type": "integer"})", "The number of rows, with octets."},
    {"Hotbed-Ids", R"({"type": "integer"})", "The bytes behind the rows: one per id, with octets."},
    {"Hotbed-Tiers", R"({"type": "integer"})",
     "The bytes behind those: one per id with with_tiers, else 0, with octets."},
    {"Hotbed-Age-Ms", R"({"type": "integer"})", "As age_ms, with octets."},
    {"Hotbed-Version", R"({"type": "string"})", "As version, with octets."},
};

constexpr ReplyField kErrorFields[] = {
    {"code", R"({"type": "integer"})", "The code of HTTP."},
    {"message", R"({"type": "string"})", "For people."},
    {"field", R"({"type": "string"})", "The field that is refused, such as ids[3]."},
    {"value", R"({"type": "string"})", "Its value."},
    {"limit", R"({"type": "string"})", "The values that are allowed."},
    {"retry_ms", R"({"type": "integer"})",
     "Where too much waits: after how many milliseconds the request may come again."},
};

const char* TypeName(RowType type) {
  static constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "int8"};
  return kNames[static_cast<int>(type)];
}

std::string VersionText(const LookupBody& body) {
  return body.version.empty() ? "latest" : body.version;
}

uint64_t RowsOf(const LookupBody& body) {
  return body.pooling == v1::SERVED_ROWS ? body.ids.size() : body.offsets.size();
}

// One row of the wire as floats.
void ReadRow(RowType type, const uint8_t* row, uint32_t dim, float* out) {
  auto* const to = reinterpret_cast<uint8_t*>(out);
  switch (type) {
    case RowType::kFp32:
      std::memcpy(out, row, 4ull * dim);
      return;
    case RowType::kFp16:
      return ConvertRow<Fp16Codec, Fp32Codec>(row, dim, to);
    case RowType::kBf16:
      return ConvertRow<Bf16Codec, Fp32Codec>(row, dim, to);
    case RowType::kInt8:
      return DequantizeRow(row, dim, out);
  }
}

void AppendArrays(const std::string& rows, RowType type, uint32_t dim, uint64_t count,
                  std::string* text) {
  std::vector<float> values(dim);
  const auto* row = reinterpret_cast<const uint8_t*>(rows.data());
  text->push_back('[');
  for (uint64_t i = 0; i < count; ++i, row += RowWireBytes(type, dim)) {
    ReadRow(type, row, dim, values.data());
    text->append(i == 0 ? "[" : ",[");
    for (uint32_t d = 0; d < dim; ++d) {
      if (d > 0) text->push_back(',');
      AppendNumber(values[d], text);
    }
    text->push_back(']');
  }
  text->push_back(']');
}

void AppendTiers(const std::string& tiers, std::string* text) {
  text->append(",\"tiers\":[");
  for (size_t i = 0; i < tiers.size(); ++i) {
    const auto tier = static_cast<size_t>(static_cast<uint8_t>(tiers[i]));
    absl::StrAppend(text, i == 0 ? "\"" : ",\"",
                    kTierNames[tier < std::size(kTierNames) ? tier : 0], "\"");
  }
  text->push_back(']');
}

HttpResponse Octets(const v1::ServingLookupReply& reply, const LookupBody& body) {
  HttpResponse response = {.type = "application/octet-stream"};
  response.body = absl::StrCat(reply.rows(), reply.exists(), reply.tiers());
  const std::string values[] = {TypeName(body.type),
                                absl::StrCat(reply.tables(0).dim()),
                                absl::StrCat(RowsOf(body)),
                                absl::StrCat(body.ids.size()),
                                absl::StrCat(reply.tiers().size()),
                                absl::StrCat(reply.tables(0).age_ms()),
                                VersionText(body)};
  static_assert(std::size(values) == std::size(kOctetHeaders));
  for (size_t i = 0; i < std::size(values); ++i) {
    response.headers.emplace_back(kOctetHeaders[i].name, values[i]);
  }
  return response;
}

std::string DumpOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

template <typename Number>
void AppendNumber(Number value, std::string* text) {
  if (!std::isfinite(value)) {
    text->append("null");
    return;
  }
  char digits[32];
  text->append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}
template void AppendNumber(float value, std::string* text);
template void AppendNumber(double value, std::string* text);

absl::Span<const ReplyField> LookupReplyFields() { return kReplyFields; }
absl::Span<const ReplyField> PartFields() { return kPartFields; }
absl::Span<const ReplyField> OctetHeaderFields() { return kOctetHeaders; }
absl::Span<const ReplyField> ErrorFields() { return kErrorFields; }

uint64_t ResponseBytes(const LookupBody& body, uint32_t dim, LookupForm form) {
  const uint64_t rows = RowsOf(body), ids = body.ids.size();
  if (form == LookupForm::kArrays) {
    const uint64_t of_id = kFlagBytes + (body.tiers ? kTierBytes : 0);
    return kFrameBytes + rows * (kNumberBytes * dim + 3) + ids * of_id;
  }
  const uint64_t bytes = rows * RowWireBytes(body.type, dim) + ids * (body.tiers ? 2 : 1);
  return kFrameBytes + (form == LookupForm::kOctets ? bytes : bytes / 3 * 4 + 16);
}

HttpResponse LookupResponse(const v1::ServingLookupReply& reply, const LookupBody& body,
                            LookupForm form, absl::string_view table, absl::string_view server) {
  if (form == LookupForm::kOctets) return Octets(reply, body);
  const uint32_t dim = reply.tables(0).dim();
  const uint64_t rows = RowsOf(body);
  const Json head = {{"table", table},
                     {"server", server},
                     {"version", VersionText(body)},
                     {"age_ms", reply.tables(0).age_ms()},
                     {"type", TypeName(body.type)},
                     {"dim", dim},
                     {"rows", rows}};
  HttpResponse response = {.type = "application/json", .body = DumpOf(head)};
  std::string* const text = &response.body;
  text->pop_back();  // the brace
  text->append(",\"values\":");
  if (form == LookupForm::kBase64) {
    absl::StrAppend(text, "\"", absl::Base64Escape(reply.rows()), "\",\"exists\":\"",
                    absl::Base64Escape(reply.exists()), "\"");
    if (body.tiers) {
      absl::StrAppend(text, ",\"tiers\":\"", absl::Base64Escape(reply.tiers()), "\"");
    }
    text->append("}\n");
    return response;
  }
  text->reserve(ResponseBytes(body, dim, form));
  AppendArrays(reply.rows(), body.type, dim, rows, text);
  text->append(",\"exists\":[");
  for (size_t i = 0; i < reply.exists().size(); ++i) {
    absl::StrAppend(text, i == 0 ? "" : ",", reply.exists()[i] != 0 ? "true" : "false");
  }
  text->push_back(']');
  if (body.tiers) AppendTiers(reply.tiers(), text);
  text->append("}\n");
  return response;
}

namespace {

// 0: the error says none.
uint64_t RetryMsOf(const absl::Status& error) {
  const auto text = error.GetPayload(kErrorRetryMs);
  uint64_t ms = 0;
  return text.has_value() && absl::SimpleAtoi(std::string(*text), &ms) ? ms : 0;
}

Json ErrorOf(int code, const absl::Status& error) {
  Json said = {{"code", code}, {"message", std::string(error.message())}};
  for (const auto& [name, payload] :
       {std::pair("field", kErrorField), std::pair("value", kErrorValue),
        std::pair("limit", kErrorLimit)}) {
    if (const auto text = error.GetPayload(payload); text.has_value()) {
      said[name] = std::string(*text);
    }
  }
  if (const uint64_t ms = RetryMsOf(error); ms > 0) said["retry_ms"] = ms;
  return said;
}

}  // namespace

namespace {

void AppendKnown(const TableText& one, std::string* text) {
  if (one.base64) {
    const std::string bytes(one.known.begin(), one.known.end());
    absl::StrAppend(text, "\"", absl::Base64Escape(bytes), "\"");
    return;
  }
  for (size_t i = 0; i < one.known.size(); ++i) {
    absl::StrAppend(text, i == 0 ? "[" : ",", one.known[i] != 0 ? "true" : "false");
  }
  text->push_back(']');
}

}  // namespace

HttpResponse LookupsResponse(absl::Span<const TableText> tables) {
  HttpResponse response = {.type = "application/json", .body = "{\"tables\":["};
  for (size_t i = 0; i < tables.size(); ++i) {
    if (i > 0) response.body.push_back(',');
    const TableText& one = tables[i];
    if (one.error.ok()) {
      absl::StrAppend(&response.body, absl::StripSuffix(one.text, "\n"));
      continue;
    }
    const Json error = ErrorOf(HttpCodeOf(one.error.code()), one.error);
    if (one.text.empty()) {
      response.body.append(DumpOf({{"table", one.table}, {"error", error}}));
      continue;
    }
    absl::StrAppend(&response.body, absl::StripSuffix(one.text, "}\n"), ",\"known\":");
    AppendKnown(one, &response.body);
    absl::StrAppend(&response.body, ",\"error\":", DumpOf(error), "}");
  }
  response.body.append("]}\n");
  return response;
}

HttpResponse ErrorResponse(int code, const absl::Status& error) {
  const Json said = ErrorOf(code, error);
  HttpResponse response = {
      .code = code, .type = "application/json", .body = DumpOf({{"error", said}}) + "\n"};
  if (code == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (code == 429 || code == 503) {
    // HTTP has whole seconds alone.
    const uint64_t seconds = (RetryMsOf(error) + 999) / 1000;
    response.headers.emplace_back("Retry-After", absl::StrCat(std::max<uint64_t>(seconds, 1)));
  }
  return response;
}

int HttpCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kOutOfRange:
      return 413;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace hotbed
