#include "serving/http/table_list.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr ReplyField kTableFields[] = {
    {"table", R"({"type": "string"})", "Its name."},
    {"dim", R"({"type": "integer"})", "Elements of a row."},
    {"format", R"({"type": "string", "enum": ["fp32", "fp16", "bf16", "int8", "int4", "int2"]})",
     "How rows lie in memory."},
    {"ready", R"({"type": "boolean"})", "The copy has all rows, and answers."},
    {"rows", R"({"type": "integer"})", "The number of its rows."},
    {"age_ms", R"({"type": "integer", "nullable": true})",
     "All pushes that were acknowledged longer ago are in it; null until it is ready."},
    {"staleness_max_ms", R"({"type": "integer"})",
     "It refuses lookups while it is older; 0: it never does."},
    {"trouble", R"({"type": "string"})", "Why it does not follow, or is not ready; else empty."},
};

constexpr ReplyField kVersionFields[] = {
    {"version", R"({"type": "string"})", "Its name."},
    {"number", R"({"type": "integer"})", "Later ones have larger numbers."},
    {"model", R"({"type": "string"})", "The model whose version it is."},
    {"current", R"({"type": "boolean"})", "Lookups of version current read it."},
    {"held", R"({"type": "boolean"})", "This server answers it, for all of its tables."},
    {"tables", R"({"type": "array", "items": {"type": "string"}})",
     "The tables of this server that it has."},
    {"at_step", R"({"type": "integer"})", "The step of training whose rows it has; 0: none."},
    {"published_unix_ms", R"({"type": "integer"})", "When it was published."},
};

std::string FormatName(v1::ServedFormat format) {
  const std::string& name = v1::ServedFormat_Name(format);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "SERVED_"));
}

HttpResponse Document(const Json& json) {
  return {.type = "application/json",
          .body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

}  // namespace

absl::Span<const ReplyField> VersionFields() { return kVersionFields; }

HttpResponse VersionsResponse(absl::string_view server, absl::Span<const ListedVersion> versions) {
  Json json = {{"server", server}, {"versions", Json::array()}};
  for (const ListedVersion& one : versions) {
    json["versions"].push_back({{"version", one.version.name()},
                                {"number", one.version.number()},
                                {"model", one.version.model()},
                                {"current", one.current},
                                {"held", one.held},
                                {"tables", one.tables},
                                {"at_step", one.version.at_step()},
                                {"published_unix_ms", one.version.published_unix_ms()}});
  }
  return Document(json);
}

absl::Span<const ReplyField> TableFields() { return kTableFields; }

HttpResponse TablesResponse(absl::string_view server, absl::Span<const ListedTable> tables) {
  Json json = {{"server", server}, {"tables", Json::array()}};
  for (const ListedTable& table : tables) {
    const v1::ReplicaReport& report = table.report;
    json["tables"].push_back({{"table", table.name},
                              {"dim", table.dim},
                              {"format", FormatName(report.format())},
                              {"ready", report.ready()},
                              {"rows", report.rows()},
                              {"age_ms", report.ready() ? Json(report.age_ms()) : Json()},
                              {"staleness_max_ms", table.staleness_ms_max},
                              {"trouble", report.trouble()}});
  }
  return Document(json);
}

}  // namespace hotbed
