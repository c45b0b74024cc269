// The OpenAPI document of the HTTP port, out of the tables that the code reads and writes by.
#ifndef HOTBED_SERVING_HTTP_OPENAPI_H_
#define HOTBED_SERVING_HTTP_OPENAPI_H_

#include <string>

#include "absl/types/span.h"

namespace hotbed {

struct HttpRoute {
  const char* method;  // "GET"
  const char* path;    // "/v1/tables/{name}:lookup"
  const char* about;
  enum Kind { kLookup, kLookups, kTopK, kTables, kVersions, kDocument } kind;
};
absl::Span<const HttpRoute> HttpRoutes();

// `version` of Hotbed.
std::string OpenApiDocument(const std::string& version);

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_OPENAPI_H_
