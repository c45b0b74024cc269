// Lookups by HTTP: routes, access, limits, errors (docs/serving.md, "HTTP"). Thread-safe.
#ifndef HOTBED_SERVING_HTTP_LOOKUPS_H_
#define HOTBED_SERVING_HTTP_LOOKUPS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "admin/http_port.h"
#include "common/clock.h"
#include "serving/answer_budget.h"
#include "serving/http/openapi.h"
#include "serving/table_replicas.h"

namespace hotbed {

struct HttpLookupOptions {
  std::string server;              // the name of this serving server
  uint64_t message_bytes_max = 0;  // a body, and an answer
  // Whether who has `token` may call `method` with `table`, which is empty where the method names
  // none: OK, Unauthenticated or PermissionDenied. Empty: everybody may.
  std::function<absl::Status(absl::string_view token, absl::string_view method,
                             absl::string_view table)>
      access;
};

class HttpLookups {
 public:
  // All outlive it.
  HttpLookups(HttpLookupOptions options, const TableReplicas* tables, AnswerBudget* budget,
              const Clock* clock);

  // Answers one request; called by the threads of an HttpPort.
  HttpResponse Answer(const HttpRequest& request);

 private:
  absl::StatusOr<HttpResponse> Answer(const HttpRequest& request, const HttpRoute& route,
                                      const std::string& table);
  // The table, if the caller may call `method` with it.
  absl::StatusOr<std::shared_ptr<const TableReplica>> Find(const HttpRequest& request,
                                                           absl::string_view method,
                                                           const std::string& table) const;
  absl::StatusOr<HttpResponse> Read(const HttpRequest& request, const TableReplica& replica) const;
  absl::StatusOr<HttpResponse> TopK(const HttpRequest& request, const TableReplica& replica);
  absl::StatusOr<HttpResponse> Tables(const HttpRequest& request) const;
  absl::StatusOr<HttpResponse> Versions(const HttpRequest& request) const;
  // The number of the version that a body names; the name that it has is set where it names the
  // current one or the newest rows.
  absl::StatusOr<uint64_t> NumberOf(std::string* version, uint32_t staleness_ms_max) const;
  absl::Status MayCall(const HttpRequest& request, absl::string_view method,
                       absl::string_view table) const;
  absl::Status InTime(const HttpRequest& request, uint32_t timeout_ms) const;

  const HttpLookupOptions options_;
  const TableReplicas& tables_;
  AnswerBudget* const budget_;
  const Clock& clock_;
  const std::string document_;
  std::atomic<bool> searches_{false};
};

// A port that answers by `lookups`, which outlives it, with errors as it gives them, and counts.
absl::StatusOr<std::unique_ptr<HttpPort>> OpenLookupPort(const std::string& listen,
                                                         uint64_t message_bytes_max,
                                                         uint64_t answer_bytes_max,
                                                         HttpLookups* lookups);

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_LOOKUPS_H_
