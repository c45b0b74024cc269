// The answers to GET /v1/tables and GET /v1/versions. Pure functions.
#ifndef HOTBED_SERVING_HTTP_TABLE_LIST_H_
#define HOTBED_SERVING_HTTP_TABLE_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "admin/http_request.h"
#include "proto/serving.pb.h"
#include "serving/http/lookup_reply.h"

namespace hotbed {

struct ListedTable {
  std::string name;
  uint32_t dim = 0;
  uint64_t staleness_ms_max = 0;
  v1::ReplicaReport report;
};

HttpResponse TablesResponse(absl::string_view server, absl::Span<const ListedTable> tables);

absl::Span<const ReplyField> TableFields();

struct ListedVersion {
  v1::ServedVersion version;
  bool current = false;
  bool held = false;                // by all of `tables`
  std::vector<std::string> tables;  // of this server
};

HttpResponse VersionsResponse(absl::string_view server, absl::Span<const ListedVersion> versions);

absl::Span<const ReplyField> VersionFields();

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_TABLE_LIST_H_
