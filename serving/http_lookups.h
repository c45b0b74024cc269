// Lookups by HTTP: routes, access, limits, errors (docs/serving.md, "HTTP"). Thread-safe.
#ifndef HOTBED_SERVING_HTTP_LOOKUPS_H_
#define HOTBED_SERVING_HTTP_LOOKUPS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "admin/http_port.h"
#include "common/clock.h"
#include "hotbed/serving.h"
#include "security/certificate.h"
#include "serving/answer_budget.h"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/openapi.h"
#include "serving/http/top_k_body.h"
#include "serving/lookup_queue.h"
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
  // Runs a lookup of copies of this server, now or later (LookupQueue::Run). Empty: at once.
  std::function<absl::Status(const LookupQueue::Wanted&, LookupQueue::Task, int64_t* retry_ns)> run;
  // Runs a search for a top-k and returns once it has ended. ResourceExhausted: too many wait, and
  // it is not run. Empty: at once.
  std::function<absl::Status(const std::function<void()>&)> search;
  // By which other serving servers are asked for tables and versions that this one cannot answer;
  // it connects within the time. Empty: nobody else is asked.
  std::function<absl::StatusOr<ServingClient*>(absl::Duration)> others;
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
  // One table of a lookup, with its rows or an error. It has them as gRPC has them.
  struct TableAnswer {
    absl::Status status;
    v1::ServingLookupReply reply;
    std::string server;
    std::string version;
    std::vector<uint8_t> known;  // as in ServingRows; then there are rows besides an error
  };
  // A part of the budget for answers, given back in the end.
  struct Held;

  absl::StatusOr<HttpResponse> Lookup(const HttpRequest& request, const std::string& table);
  absl::StatusOr<HttpResponse> Lookups(const HttpRequest& request);
  // By this server alone, or else by asking others for all tables: one answer must not have two
  // versions of a model. Not OK: a body is wrong, or there is no room or time.
  absl::StatusOr<std::vector<TableAnswer>> AnswerAll(const HttpRequest& request,
                                                     const std::vector<LookupBody>& bodies,
                                                     LookupForm form, bool partial, Held* held);
  absl::StatusOr<std::vector<TableAnswer>> AnswerHere(const HttpRequest& request,
                                                      const std::vector<LookupBody>& bodies,
                                                      LookupForm form, Held* held) const;
  absl::StatusOr<std::vector<TableAnswer>> AskOthers(const HttpRequest& request,
                                                     const std::vector<LookupBody>& bodies,
                                                     LookupForm form, bool partial,
                                                     Held* held) const;
  static bool NeedsOthers(const std::vector<TableAnswer>& answers);
  absl::Status Run(const HttpRequest& request, const LookupBody& options, uint64_t bytes,
                   const std::function<void()>& task) const;
  absl::StatusOr<HttpResponse> TopK(const HttpRequest& request, const std::string& table);
  absl::StatusOr<HttpResponse> TopKHere(const HttpRequest& request, const TableReplica& replica,
                                        TopKBody body);
  absl::StatusOr<HttpResponse> TopKOfOthers(const HttpRequest& request, const std::string& table,
                                            const TopKBody& body);
  absl::Status NotServedHere(absl::string_view table) const;
  // Another one must be asked for its rows, too.
  static absl::Status PartHere(const TableReplica& replica);
  // Names `field`, of which there is to be less: `fewer`.
  absl::Status CheckBytes(uint64_t bytes, absl::string_view field, absl::string_view fewer) const;
  absl::StatusOr<ServingClient*> Others(const HttpRequest& request, uint32_t timeout_ms) const;
  absl::Duration Left(const HttpRequest& request, uint32_t timeout_ms) const;
  absl::StatusOr<HttpResponse> Tables(const HttpRequest& request) const;
  absl::StatusOr<HttpResponse> Versions(const HttpRequest& request) const;
  // The number of the version of the table that a body names; the name that it has is set where it
  // names the current one or the newest rows. `tables`: of the request.
  absl::StatusOr<uint64_t> NumberOf(const OrderedVersions& versions, const TableReplica& replica,
                                    uint32_t staleness_ms_max, const std::vector<uint32_t>& tables,
                                    std::string* version) const;
  absl::Status MayCall(const HttpRequest& request, absl::string_view method,
                       absl::string_view table) const;
  absl::Status InTime(const HttpRequest& request, uint32_t timeout_ms) const;

  const HttpLookupOptions options_;
  const TableReplicas& tables_;
  AnswerBudget* const budget_;
  const Clock& clock_;
  const std::string document_;
  std::atomic<int> slow_{0};  // requests that search, wait for others or are of batch scoring
};

// A port that answers by `lookups`, which outlives it, with errors as it gives them, and counts.
// With TLS if `files` has a certificate.
absl::StatusOr<std::unique_ptr<HttpPort>> OpenLookupPort(const std::string& listen,
                                                         const TlsFiles& files,
                                                         uint64_t message_bytes_max,
                                                         uint64_t answer_bytes_max,
                                                         HttpLookups* lookups);

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_LOOKUPS_H_
