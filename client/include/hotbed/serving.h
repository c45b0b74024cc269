// Lookups of served tables, for inference: rows come from serving servers (docs/serving.md), never
// from the servers that trainers push to. A library of its own, hotbed::serving_client, without the
// parts that trainers use.
//
//   auto client = hotbed::ServingClient::Connect("hotbed://127.0.0.1:7400");
//   auto rows = (*client)->Lookup({{"user", users}, {"item", items}});
//   // (*rows)[0].values: users.size() x dim floats; (*rows)[0].exists: a byte per row
//
// Bags of ids are pooled at the server, or by the client where the table is cut into parts, to the
// bits of the same rows looked up and pooled here:
//
//   auto bags = (*client)->Lookup({{"item", items, hotbed::Pooling::kMean, offsets}});
//   // (*bags)[0].values: offsets.size() x dim floats
//
// The rows that are nearest to vectors, exactly (docs/topk.md), with the scores of the rows that
// lookups give:
//
//   auto nearest = (*client)->TopK("item", vector, 100, {.metric = hotbed::RowMetric::kCosine});
//   for (const hotbed::ScoredRow& row : nearest->rows[0]) Use(row.id, row.score);
//
// A lookup goes to a replica of each table that is ready, by the least outstanding calls; where
// one fails or refuses, another one is asked, until the deadline. The client learns once a second
// which server has which table; while no coordinator can be reached it goes on with what it knows.
// Thread-safe.
#ifndef HOTBED_SERVING_H_
#define HOTBED_SERVING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/scored_row.h"
#include "hotbed/pooling.h"
#include "row_math/metric.h"
#include "row_math/types.h"

namespace hotbed {

struct ServingClientOptions {
  absl::Duration connect_timeout = absl::Seconds(10);
  // The part of calls, 0..1, that may be sent a second time (hedge_after), besides a burst of 20:
  // so servers that are all slow do not get twice the calls.
  double hedge_budget = 0.05;
  // Where this client is: serving servers of that failure domain (--failure-domain) are asked
  // first, unless they have 8 calls more than others. Empty: all are equally near.
  std::string failure_domain;
  // Answers of the newest rows may be older than those before, by the lag between two copies. A
  // client then spreads its calls over copies also while rows change, and goes on with what copies
  // have where no change can come.
  bool may_go_back = false;
};

struct ServingIds {
  std::string table;
  absl::Span<const uint64_t> ids;
  // Another than kNone: a row per bag. An id without a row counts as zeros, also in the divisor of
  // a mean. An empty bag is zeros, and so is a weighted mean whose weights add up to 0.
  Pooling pooling = Pooling::kNone;
  // Where each bag begins among the ids, as in PyTorch's EmbeddingBag: the first is 0, none is less
  // than the one before, and the last bag ends with the ids.
  absl::Span<const uint32_t> offsets = {};
  // For kSum and kMean, one per id, finite: each row is multiplied by its weight, and a mean is
  // divided by the sum of the bag's. Empty: all are 1.
  absl::Span<const float> weights = {};
};

enum class ServingPriority {
  kInference,
  kBatch,  // gets what inference leaves: servers run it later and refuse it sooner
};

struct ServingLookupOptions {
  absl::Duration timeout = absl::Seconds(1);
  // Rows that are older are refused; zero: as the table has it.
  absl::Duration staleness_max = absl::ZeroDuration();
  // Where a server has not answered by then, another replica of its tables is asked, too, within
  // ServingClientOptions::hedge_budget. The first answer is taken, and the other call is cancelled.
  // Infinite: never.
  absl::Duration hedge_after = absl::InfiniteDuration();
  // How rows travel; narrower types round each row, or each pooled row, once.
  RowType wire_type = RowType::kFp32;
  ServingPriority priority = ServingPriority::kInference;
  // Tables, or parts of tables, that cannot be answered in time do not fail the others:
  // ServingRows::status of each table says why, and ServingRows::known which of its rows are there.
  bool partial = false;
  // Empty or "latest": the newest rows of each table. No row is older than in an answer that this
  // client gave before the call, whichever copies answer, unless ServingRows::older says so or the
  // client may_go_back (docs/serving.md, "Going back"). "current": of each table the current
  // version of its model ('hotbed publish'), one per model for the whole call; "current/MODEL": of
  // that model, which a call has to name where a table belongs to several and no one of them has
  // all tables of the call. Else the name of a version.
  std::string version;
  // Asked some twenty times per second while the call waits: true ends it with Cancelled. May be
  // empty.
  std::function<bool()> stop = {};
  bool with_tiers = false;  // ServingRows::tiers is wanted
};

// Where a serving server has found a row.
enum class ServingTier : uint8_t { kNone = 0, kMemory = 1, kDisk = 2, kDevice = 3 };

struct ServingRows {
  // With `partial` alone it may be another than OK: why there is no answer for this table, or for
  // some of its rows, which `known` tells. Without `known` nothing is known about any of its rows:
  // values and exists are empty.
  absl::Status status;
  uint32_t dim = 0;
  std::vector<float> values;       // dim per id, or per bag, in their order
  std::vector<uint8_t> exists;     // per id; the values of a row that does not exist are zeros
  std::vector<ServingTier> tiers;  // per id, with with_tiers; kNone: the row does not exist
  // Not empty if some parts of the table were not answered: per row of `values` 1, or 0 where
  // nothing is known (of some id of the bag), and the row is zeros; `exists` is 0 for such ids.
  std::vector<uint8_t> known;
  // All pushes that were acknowledged longer before the answer are in the rows.
  // Zero for those of a version, which do not change.
  absl::Duration age;
  // Newest rows may be older than in an answer before. No copy that is sure to be as new answered
  // within half a second, or half of the call's time (docs/serving.md, "Going back").
  bool older = false;
  std::string server;   // that answered; with commas between several, which have parts of the table
  std::string version;  // the name of that whose rows these are; empty: the newest rows
};

struct ServingTopKOptions {
  absl::Duration timeout = absl::Seconds(10);
  absl::Duration staleness_max = absl::ZeroDuration();  // as for lookups
  std::string version;                                  // likewise
  RowMetric metric = RowMetric::kDot;
  // Only these ids, at most 1,000,000; those that have no row are passed over.
  std::optional<absl::Span<const uint64_t>> only_ids;
  uint64_t first_id = 0;  // rows of other ids are passed over
  uint64_t last_id = ~uint64_t{0};
  std::function<bool()> stop = {};  // as for lookups
};

struct ServingNearest {
  // Per vector, the nearest first: the largest dot or cosine, the smallest l2, which is the square
  // of the distance. Equal scores are in the order of the ids; one that is no number comes last.
  std::vector<std::vector<ScoredRow>> rows;
  absl::Duration age;   // as in ServingRows
  bool older = false;   // likewise
  std::string server;   // likewise
  std::string version;  // likewise
};

// Since the client was made.
struct ServingClientStats {
  uint64_t calls = 0;           // to serving servers, without hedges
  uint64_t hedges = 0;          // second calls
  uint64_t hedges_won = 0;      // those that answered first
  uint64_t hedges_refused = 0;  // lookups that were late, and the budget was used up
};

class ServingClient {
 public:
  // `target` is hotbed://HOST:PORT,... of the coordinators. The cluster is reached with the
  // identity that the environment names (docs/security.md).
  static absl::StatusOr<std::unique_ptr<ServingClient>> Connect(
      const std::string& target, const ServingClientOptions& options = {});
  virtual ~ServingClient() = default;

  // Elements of a row of the table; 0: it is not served, as far as this client knows.
  virtual uint32_t Dim(const std::string& table) const = 0;

  // One answer per entry of `tables`, in their order, or an error: then no rows. With `partial`
  // errors of single tables stand in their answers, and a lookup without any answer is one, too.
  //   InvalidArgument     offsets or weights do not fit; names table, position, value and limit;
  //                       or staleness_max stands with a version; or the request has more bytes
  //                       than the serving server takes
  //   NotFound            a table is not served, or not in the version; there is no such version
  //   PermissionDenied    the caller may not read a table
  //   FailedPrecondition  every replica's rows are older than allowed; no version is current
  //   Cancelled           options.stop said so
  //   Unavailable, DeadlineExceeded, ResourceExhausted  no replica has answered in time, or all
  //                       have too much to do; names table and last error
  virtual absl::StatusOr<std::vector<ServingRows>> Lookup(
      const std::vector<ServingIds>& tables, const ServingLookupOptions& options = {}) = 0;

  // Per vector the `k` nearest rows of the table, or all if there are fewer. `vectors` has up to
  // 1,024 vectors of the table's dim, one after another; k is at most 16,384, and k times the
  // vectors at most 262,144. One server per part compares all of its rows; where it fails or
  // refuses, another one is asked, until the deadline. Errors as of Lookup.
  virtual absl::StatusOr<ServingNearest> TopK(const std::string& table,
                                              absl::Span<const float> vectors, uint32_t k,
                                              const ServingTopKOptions& options = {}) = 0;

  virtual ServingClientStats stats() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_H_
