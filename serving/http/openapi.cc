#include "serving/http/openapi.h"

#include <vector>

#include "admin/http_request.h"
#include "nlohmann/json.hpp"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/table_list.h"
#include "serving/http/top_k_body.h"

namespace hotbed {
namespace {

using Json = nlohmann::ordered_json;

constexpr HttpRoute kRoutes[] = {
    {"POST", "/v1/tables/{name}:lookup",
     "Rows of a table by id, or pooled rows of bags of ids. With 'Accept: "
     "application/octet-stream' "
     "the answer is the bytes of the rows, then a byte per id that says whether its row exists.",
     HttpRoute::kLookup},
    {"POST", "/v1/lookup", "Rows of several tables, all of one version per model.",
     HttpRoute::kLookups},
    {"POST", "/v1/tables/{name}:topk",
     "The rows of a table that are nearest to vectors, exactly: all of its rows are compared.",
     HttpRoute::kTopK},
    {"GET", "/v1/tables", "The tables of this serving server, with state and age of its copies.",
     HttpRoute::kTables},
    {"GET", "/v1/versions",
     "The versions that tables of this serving server are to have, and whether it holds them.",
     HttpRoute::kVersions},
    {"GET", "/openapi.json", "This document.", HttpRoute::kDocument},
};

Json SchemaOf(absl::Span<const ReplyField> fields) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (const ReplyField& field : fields) {
    Json one = Json::parse(field.schema);
    one["description"] = field.about;
    schema["properties"][field.name] = std::move(one);
  }
  return schema;
}

Json BodySchema(absl::Span<const BodyField> fields, const std::vector<const char*>& required) {
  Json schema = {{"type", "object"},
                 {"required", required},
                 {"additionalProperties", false},
                 {"properties", Json::object()}};
  for (const BodyField& field : fields) {
    Json one = Json::parse(field.schema);
    one["description"] = field.about;
    one["example"] = Json::parse(field.example);
    schema["properties"][field.name] = std::move(one);
  }
  return schema;
}

Json LookupsSchema() {
  Json schema = BodySchema(LookupsFields(), {"tables"});
  schema["properties"]["tables"]["items"] = BodySchema(LookupsTableFields(), {"table", "ids"});
  return schema;
}

Json Reference(const char* schema) {
  return {{"$ref", std::string("#/components/schemas/") + schema}};
}

Json JsonContent(const char* schema) {
  return {{"application/json", {{"schema", Reference(schema)}}}};
}

Json ErrorsOf(std::initializer_list<int> codes) {
  Json errors = Json::object();
  for (const int code : codes) {
    errors[std::to_string(code)] = {{"description", HttpReason(code)},
                                    {"content", JsonContent("Error")}};
  }
  return errors;
}

Json OctetHeaders() {
  Json headers = Json::object();
  for (const ReplyField& field : OctetHeaderFields()) {
    headers[field.name] = {{"schema", Json::parse(field.schema)}, {"description", field.about}};
  }
  return headers;
}

Json OperationOf(const HttpRoute& route) {
  Json operation = {{"summary", route.about}};
  Json responses = ErrorsOf({401, 403, 405, 408, 500, 503});
  Json ok = {{"description", "OK"}};
  if (std::string(route.method) == "POST") {
    responses.update(ErrorsOf({400, 404, 411, 413, 415, 429, 504}));
  }
  if (std::string(route.path).find('{') != std::string::npos) {
    operation["parameters"] = Json::array({Json{
        {"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  switch (route.kind) {
    case HttpRoute::kLookup: {
      operation["operationId"] = "lookup";
      operation["requestBody"] = {{"required", true}, {"content", JsonContent("Lookup")}};
      ok["content"] = JsonContent("LookupReply");
      ok["content"]["application/octet-stream"] = {
          {"schema", {{"type", "string"}, {"format", "binary"}}}};
      ok["headers"] = OctetHeaders();
      break;
    }
    case HttpRoute::kLookups:
      operation["operationId"] = "lookupTables";
      operation["requestBody"] = {{"required", true}, {"content", JsonContent("Lookups")}};
      ok["content"] = JsonContent("LookupsReply");
      break;
    case HttpRoute::kTopK:
      operation["operationId"] = "topK";
      operation["requestBody"] = {{"required", true}, {"content", JsonContent("TopK")}};
      ok["content"] = JsonContent("TopKReply");
      break;
    case HttpRoute::kTables:
      operation["operationId"] = "listTables";
      ok["content"] = JsonContent("Tables");
      break;
    case HttpRoute::kVersions:
      operation["operationId"] = "listVersions";
      ok["content"] = JsonContent("Versions");
      break;
    case HttpRoute::kDocument:
      operation["operationId"] = "getDocument";
      ok["content"] = {{"application/json", {{"schema", {{"type", "object"}}}}}};
      responses = ErrorsOf({405, 408, 503});
      break;
  }
  responses["200"] = std::move(ok);
  operation["responses"] = std::move(responses);
  if (route.kind == HttpRoute::kDocument) operation["security"] = Json::array();
  return operation;
}

// In the order of the request: rows, or the error of a table of a partial answer, or both.
Json LookupsReplySchema() {
  Json error = SchemaOf(ErrorFields());
  Json refused = {{"type", "object"},
                  {"properties", {{"table", {{"type", "string"}}}, {"error", std::move(error)}}}};
  Json in_part = {{"allOf", Json::array({Reference("LookupReply"), SchemaOf(PartFields())})}};
  Json each = {
      {"oneOf", Json::array({Reference("LookupReply"), std::move(in_part), std::move(refused)})}};
  return {{"type", "object"},
          {"properties", {{"tables", {{"type", "array"}, {"items", std::move(each)}}}}}};
}

Json ListSchema(const char* name, absl::Span<const ReplyField> fields) {
  return {{"type", "object"},
          {"properties",
           {{"server", {{"type", "string"}}},
            {name, {{"type", "array"}, {"items", SchemaOf(fields)}}}}}};
}

}  // namespace

absl::Span<const HttpRoute> HttpRoutes() { return kRoutes; }

std::string OpenApiDocument(const std::string& version) {
  Json document = {
      {"openapi", "3.0.3"},
      {"info",
       {{"title", "Hotbed: lookups of served tables"},
        {"version", version},
        {"description", "Read copies of embedding tables, for inference (docs/serving.md)."}}},
      {"paths", Json::object()},
      {"components",
       {{"schemas",
         {{"Lookup", BodySchema(LookupFields(), {"ids"})},
          {"LookupReply", SchemaOf(LookupReplyFields())},
          {"Lookups", LookupsSchema()},
          {"LookupsReply", LookupsReplySchema()},
          {"TopK", BodySchema(TopKFields(), {"vectors"})},
          {"TopKReply", SchemaOf(TopKReplyFields())},
          {"Tables", ListSchema("tables", TableFields())},
          {"Versions", ListSchema("versions", VersionFields())},
          {"Error", {{"type", "object"}, {"properties", {{"error", SchemaOf(ErrorFields())}}}}}}},
        {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({Json{{"token", Json::array()}}, Json::object()})}};
  for (const HttpRoute& route : kRoutes) {
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(c + ('a' - 'A'));
    document["paths"][route.path][method] = OperationOf(route);
  }
  return document.dump(1) + "\n";
}

}  // namespace hotbed
