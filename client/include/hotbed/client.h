// hotbed::Client: what a trainer or an inference service links.
//
//   auto client = hotbed::Client::Connect("hotbed://127.0.0.1:7400", {.session_name = "job-7/0"});
//   auto table = (*client)->OpenTable("user");
//
//   // rows: ids.size() x dim floats; duplicate ids are answered too.
//   hotbed::PullFeature in{*table, ids, rows.data()};
//   absl::Status pulled = (*client)->Pull({&in, 1}).Wait();
//
//   // Gradients of duplicate ids are summed in the order of first appearance.
//   hotbed::PushFeature out{*table, ids, gradients.data()};
//   absl::Status pushed = (*client)->Push(step, {&out, 1}).Wait().status;
//
// One call carries any number of features over any number of tables; it becomes one message a
// server (cut by bytes where it is larger than a message may be). Several calls may be in flight.
// The client removes duplicate ids, splits by shard, retries, follows shards to new owners, and
// gives up at the deadline only.
//
// Thread rule: Client and Table are thread-safe. Buffers named in a call belong to the client until
// its Future is ready. Pushes of one session to one shard are applied in the order of the Push
// calls; concurrent Push calls have no order between them, and steps must not decrease in the order
// of the calls.
#ifndef HOTBED_CLIENT_H_
#define HOTBED_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hotbed/future.h"
#include "hotbed/table_options.h"

namespace hotbed {

class Table;

// Who answers pulls and lookups of shards with several copies. kPrimary: the primary alone. kAny:
// whoever holds a copy, the near ones by turns; what a copy cannot answer (it is behind the
// caller's own pushes, or down) the primary is asked at once. kDefault: kPrimary, but kAny for
// tables that have a copy on every server (data_parallel).
enum class ReadFrom : uint8_t { kDefault = 0, kPrimary = 1, kAny = 2 };

struct ClientOptions {
  // Stable over restarts of this trainer (job and rank): the identity under which pushes are
  // applied exactly once. A second client that connects with the same name fences the first. Empty:
  // a name of its own.
  std::string session_name;
  absl::Duration deadline = absl::Seconds(60);  // of every call that names none
  // How rows travel; they arrive as fp32 unless a feature asks otherwise.
  RowType pull_type = RowType::kFp32;
  RowType push_type = RowType::kFp32;  // how gradients travel
  ReadFrom read_from = ReadFrom::kDefault;
  // Calls that wait for the same server may travel as one message: more rows a second where calls
  // are small and many in flight.
  bool join_requests = true;
  // Larger calls are cut, to this or to the least that a server of the cluster accepts
  // (--message-bytes-max).
  uint64_t message_bytes_max = 1ull << 20;
  // A call beyond a limit waits for room, at most until its deadline, which it then ends with; so
  // does a push that would, by what the last ones took, be answered too late. One larger than the
  // bytes goes alone. So these calls may block: not to be made from a Future's callback.
  int pulls_in_flight_max = 256;                   // Pull and Lookup
  uint64_t pull_bytes_in_flight_max = 1ull << 30;  // ids and rows as they travel
  int pushes_in_flight_max = 64;
  uint64_t push_bytes_in_flight_max = 256ull << 20;  // ids and gradients as they travel
  int threads = 1;                                   // that drive the network
  // How many trainers train together: what a push to a table of gradient_reduction `mean` is
  // divided by (synchronous tables count for themselves).
  uint32_t trainers = 1;
  // The trainers that go through the steps of synchronous and bounded tables together: those of one
  // group name (JoinTrainers). Empty: none; such tables then take no pushes from this client.
  std::string trainer_group;
  // A trainer that the coordinator does not hear of for so long is given up, and its group goes on
  // without it. Zero: the coordinator's --trainer-lease-ms.
  absl::Duration trainer_lease = absl::ZeroDuration();
};

// How a bag of rows becomes one (docs/tables.md, "Batches, pooling and bounds").
enum class BagPooling : uint8_t { kSum = 0, kMean = 1, kMax = 2 };

// Of an empty bag.
inline constexpr uint32_t kArgMaxOfNothing = 0xffffffffu;

// One input of a pull: `rows[i]` receives the row of `ids[i]`, ids.size() x dim elements of
// `row_type`. An id that the table's padding id or bounds mode makes nothing (docs/tables.md) gets
// a row of zeros, and does not exist.
//
// With `bag_lengths`, the ids are bags, one behind the other, and rows[b] receives bag b as one row
// of dim floats. Each server pools what it has of a bag, so a row a bag and shard travels instead
// of a row an id; ids are sent as often as they occur. What the shards answer is joined in their
// order: sums in fp32 (so the same shards give the same bits, others within rounding), for a mean
// then divided by the number of the bag's ids, or by the sum of their weights (fp32, in order), the
// largest for a maximum. Wire types fp16 and bf16 round each shard's row once. An empty bag is
// zeros. An id that is made nothing counts for nothing; one outside of its table still counts in
// the mean's divisor.
struct PullFeature {
  const Table* table = nullptr;
  absl::Span<const uint64_t> ids;
  void* rows = nullptr;
  // Of `rows` in memory: kFp32, or the type that travels (no conversion).
  RowType row_type = RowType::kFp32;
  // If set: 1 where the row was ever pushed, 0 where its first value was computed.
  uint8_t* exists = nullptr;
  // The caller has removed duplicates already: spares the client the search where this is the
  // table's only feature. An id that does occur twice is pulled twice.
  bool distinct = false;

  // Pooled: one length a bag, together ids.size(). Empty: a row an id, and nothing below is set.
  absl::Span<const uint32_t> bag_lengths;
  const float* id_weights = nullptr;  // kSum and kMean: each row times its id's weight
  BagPooling pooling = BagPooling::kSum;
  // kMax: bags x dim, which id of its bag an element is from, counted from 0; of equals the first.
  uint32_t* arg_max = nullptr;
  uint64_t row_stride = 0;  // floats from one bag's row to the next; 0: dim
};

struct PullOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  const RowType* wire_type = nullptr;              // null: the client's
  // A pull sees this client's own acknowledged pushes, and per shard never an older state than an
  // earlier pull of this client did. Beyond that, of shards with several copies:
  ReadFrom read_from = ReadFrom::kDefault;  // kDefault: the client's
  // Everything that anybody got an acknowledgement for before the pull began: the primary alone
  // answers, and only while it surely is the primary. Not together with kAny.
  bool strict = false;
  // A copy answers only if it has heard from the primary within so long. Zero: no such limit.
  absl::Duration staleness_max = absl::ZeroDuration();
};

// One output of a step: gradients[i] is the gradient for ids[i], ids.size() x dim floats.
// Duplicates are summed. Ids that the table's padding id or bounds mode makes nothing are passed
// over.
struct PushFeature {
  const Table* table = nullptr;
  absl::Span<const uint64_t> ids;
  const float* gradients = nullptr;
  // --- where many ids share a gradient row, as the ids of a bag do: the gradient for ids[i] is
  // coefficients[i] * gradients[gradient_rows[i]], and no row is copied for it.
  const uint32_t* gradient_rows = nullptr;  // one an id; null: row i
  uint64_t gradient_row_count = 0;          // of `gradients`; needed with gradient_rows
  uint64_t gradient_stride = 0;             // floats from one row to the next; 0: dim
  const float* coefficients = nullptr;      // one an id; null: 1
  // Max pooling: element d counts only where arg_max[r * dim + d] is bag_positions[i], r being the
  // gradient row; elsewhere the gradient is 0. Both or none.
  const uint32_t* arg_max = nullptr;
  const uint32_t* bag_positions = nullptr;
};

struct PushOptions {
  absl::Duration deadline = absl::ZeroDuration();
  bool has_learning_rate = false;
  float learning_rate = 0.0f;  // for this push, all tables; else each table's own
  // The rows given are the new weights themselves, and their optimizer state begins anew: import
  // and tests. An id may then occur once a table.
  bool assign = false;
  // All gradients of the push are multiplied by it first.
  float gradient_scale = 1.0f;
  // If the norm of the push, over all tables and rows after duplicates are summed, is above this,
  // all are scaled down to it (DECISIONS S6). 0: off. Rows with an element that is NaN or infinite
  // (nan_policy skip or allow) count for nothing in the norm.
  float clip_global_norm = 0.0f;
};

// What became of a push. A step is atomic per shard, not across shards (DECISIONS S3): `shards`
// lists those that did not apply it.
struct PushResult {
  enum class Outcome {
    // By all shards, exactly once; by those of synchronous tables: in the log, to be applied when
    // the step is committed (see `staged`).
    kApplied,
    // At least one shard refused for good; see `shards` (those not listed applied it). No shards:
    // the push was refused as a whole, nothing was sent.
    kFailed,
    // What at least one shard did is unknown. status is kDeadlineExceeded: the deadline passed and
    // it may yet be applied; Client::Retry(result) goes on asking, and nothing is ever applied
    // twice. status is kUnknown: an acknowledgement was lost, and the shard has since refused to
    // answer (fenced by a newer client, damaged, dropped); nobody will tell.
    kIndeterminate,
  };
  struct Shard {
    std::string table;
    uint32_t index = 0;
    uint64_t sequence = 0;
    absl::Status status;  // kUnknown stands for indeterminate
  };
  Outcome outcome = Outcome::kApplied;
  absl::Status status;  // OK exactly when kApplied
  uint64_t step = 0;
  uint64_t ticket = 0;  // names the push for Client::Retry
  bool staged = false;  // it has rows of synchronous tables: EndStep applies them
  std::vector<Shard> shards;
};

// What the client did so far. Counters since Connect.
struct ClientStats {
  uint64_t ids_asked = 0;    // with duplicates
  uint64_t ids_zeroed = 0;   // of pulls and pushes: outside of their table, bounds mode zero
  uint64_t rows_pulled = 0;  // without
  uint64_t rows_pushed = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t messages = 0;
  uint64_t retries = 0;  // of a segment
  uint64_t wrong_epoch = 0;
  uint64_t reconnects = 0;
};

class Client {
 public:
  // Target: "hotbed://HOST:PORT" of the coordinator. Waits for it until the deadline of the
  // options.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         const ClientOptions& options = {});
  virtual ~Client() = default;

  // --- tables. A Table lives as long as its client.
  virtual absl::StatusOr<const Table*> CreateTable(const TableOptions& options,
                                                   bool if_not_exists = false) = 0;
  virtual absl::StatusOr<const Table*> OpenTable(const std::string& name) = 0;
  virtual absl::Status DropTable(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<TableOptions>> ListTables() = 0;

  // --- training. Errors that can be seen before anything is sent (an id outside a bounded table,
  // NaN where the table rejects it, no features, sizes that do not fit) are returned by a ready
  // Future, and nothing was sent.
  virtual Future<absl::Status> Pull(absl::Span<const PullFeature> features,
                                    const PullOptions& options = {}) = 0;
  // `step` grows over the life of the session name (use the training step); one Push a table and
  // step (DECISIONS S2). A restarted trainer that repeats steps is answered kApplied for those
  // already applied.
  virtual Future<PushResult> Push(uint64_t step, absl::Span<const PushFeature> features,
                                  const PushOptions& options = {}) = 0;
  // Goes on with a push that ended kIndeterminate: same sequence numbers, applied at most once.
  virtual Future<PushResult> Retry(const PushResult& result,
                                   absl::Duration deadline = absl::ZeroDuration()) = 0;
  // The pushes that have waited so long for an answer, the oldest first, each as it would end now:
  // `shards` are those that have not answered, `status` has what was heard of them last.
  virtual std::vector<PushResult> UnansweredPushes(absl::Duration at_least) const = 0;

  // --- steps of trainers, for tables of bounded staleness and synchronous ones (docs/tables.md,
  // Consistency of training). All block, at most until the deadline (zero: the client's), and may
  // be called again after kDeadlineExceeded or kUnavailable. kAborted: the group has given this
  // trainer up (it was not heard of for its lease); what it pushed in the step is dropped; join
  // again.
  //
  // Joins ClientOptions::trainer_group; the step to begin with: the one after the group's last. All
  // trainers of a group number their steps alike.
  virtual absl::StatusOr<uint64_t> JoinTrainers(absl::Duration deadline = absl::ZeroDuration()) = 0;
  // Waits until this trainer may begin `step`: no trainer of the group is more than the staleness
  // of the bounded tables behind. Push does the same for the tables that it names.
  virtual absl::Status BeginStep(uint64_t step, absl::Duration deadline = absl::ZeroDuration()) = 0;
  // All pushes of `step` were made. Waits until they are answered; with synchronous tables, until
  // all trainers have ended the step and every shard has applied it: a pull then sees it.
  virtual absl::Status EndStep(uint64_t step, absl::Duration deadline = absl::ZeroDuration()) = 0;
  // The others go on without this trainer; what it pushed of a step that it has not ended is
  // dropped. Closing the client leaves too.
  virtual absl::Status LeaveTrainers(absl::Duration deadline = absl::ZeroDuration()) = 0;

  // --- inference: one unary call a server; no session, no order.
  virtual Future<absl::Status> Lookup(absl::Span<const PullFeature> features,
                                      const PullOptions& options = {}) = 0;

  virtual ClientStats Stats() const = 0;
  virtual std::string cluster_id() const = 0;
};

class Table {
 public:
  virtual ~Table() = default;
  virtual const TableOptions& options() const = 0;
  const std::string& name() const { return options().name; }
  uint32_t dim() const { return options().dim; }
  virtual uint32_t shard_count() const = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_H_
