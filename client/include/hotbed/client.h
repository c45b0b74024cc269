// hotbed::Client: the library that a trainer or an inference service links.
//
//   auto client = hotbed::Client::Connect("hotbed://127.0.0.1:7400", {.session_name = "job-7/0"});
//   auto table = (*client)->OpenTable("user");
//
//   // rows: ids.size() x dim floats, one row per id; duplicate ids are allowed.
//   hotbed::PullFeature in{*table, ids, rows.data()};
//   absl::Status pulled = (*client)->Pull({&in, 1}).Wait();
//
//   // Gradients of duplicate ids are summed in the order of first appearance.
//   hotbed::PushFeature out{*table, ids, gradients.data()};
//   absl::Status pushed = (*client)->Push(step, {&out, 1}).Wait().status;
//
// One call carries any number of features over any number of tables. It becomes one message per
// server, or several where one would be larger than a message may be. Several calls may be in
// flight. The client removes duplicate ids, splits by shard, retries, follows shards to new
// servers, and gives up only at the deadline.
//
// Thread rule: Client and Table are thread-safe. Buffers named in a call belong to the client until
// the call's Future is ready. Pushes of one session to one shard are applied in the order of the
// Push calls. Concurrent Push calls have no order between them, and steps must not decrease in the
// order of the calls.
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

// Which server answers pulls and lookups of a shard that has several replicas.
//   kPrimary  the primary alone.
//   kAny      any server that holds a replica; the near ones take turns. If a replica cannot
//             answer, because it is behind the caller's own pushes or down, the primary is asked
//             at once. If an answer takes longer than usual, another replica is asked, too
//             (docs/tables.md, "Reading from replicas").
//   kDefault  kAny for tables that have a replica on every server (data_parallel), otherwise
//             kPrimary.
enum class ReadFrom : uint8_t { kDefault = 0, kPrimary = 1, kAny = 2 };

struct ClientOptions {
  // The identity under which pushes are applied exactly once. Keep it stable over restarts of this
  // trainer (job and rank). A second client that connects with the same name fences the first.
  // Empty: a unique name.
  std::string session_name;
  absl::Duration deadline = absl::Seconds(60);  // of calls that name none; above zero
  // TLS and who calls (docs/security.md), as files in PEM; they are read again when they change.
  // All empty: HOTBED_TLS_CERT, HOTBED_TLS_KEY, HOTBED_TLS_CA and HOTBED_TOKEN_FILE, and plaintext
  // where these are not set either.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;  // signs the certificates of servers and coordinator
  std::string token_file;     // holds a bearer token, in place of a certificate
  // How rows travel. They arrive as fp32 unless a feature asks for the type that travels.
  RowType pull_type = RowType::kFp32;
  RowType push_type = RowType::kFp32;  // how gradients travel; not kInt8
  ReadFrom read_from = ReadFrom::kDefault;
  // Calls that wait for the same server may travel as one message: more rows per second where calls
  // are small and many are in flight.
  bool join_requests = true;
  // Bytes per message, 64 KiB to 64 MiB. Larger calls are cut to this size, or to the smallest that
  // a server of the cluster accepts (its --message-bytes-max).
  uint64_t message_bytes_max = 1ull << 20;
  // Limits on calls in flight. A call beyond a limit blocks until the limit admits it, at most
  // until its deadline, and then ends with DeadlineExceeded; a push also blocks where, judging by
  // the last ones, it would be answered too late. A call that alone exceeds a limit of bytes is
  // sent when nothing else is in flight. Because Pull, Lookup and Push may block, do not call them
  // from a Future's callback.
  int pulls_in_flight_max = 256;                     // of Pull and Lookup; 1 to 65536
  uint64_t pull_bytes_in_flight_max = 1ull << 30;    // ids and rows as they travel
  int pushes_in_flight_max = 64;                     // 1 to 65536
  uint64_t push_bytes_in_flight_max = 256ull << 20;  // ids and gradients as they travel
  int threads = 1;                                   // that drive the network; 1 to 64
  // How many trainers train together, 1 to 65536: pushes to a table of gradient_reduction `mean`
  // are divided by it. Synchronous tables use the size of the trainer group instead.
  uint32_t trainers = 1;
  // The name of the group of trainers that take the steps of synchronous and bounded tables
  // together (JoinTrainers). Empty: no group; such tables then take no pushes from this client.
  std::string trainer_group;
  // The coordinator gives a trainer up, and its group continues without it, when it has not heard
  // from the trainer for this time: 100 ms to 10 min. Zero: the coordinator's --trainer-lease-ms.
  absl::Duration trainer_lease = absl::ZeroDuration();
};

// How a bag of rows becomes one row (docs/tables.md, "Batches, pooling and bounds").
enum class BagPooling : uint8_t { kSum = 0, kMean = 1, kMax = 2 };

// The arg_max of every element of an empty bag.
inline constexpr uint32_t kArgMaxOfNothing = 0xffffffffu;

// One input of a pull: `rows[i]` receives the row of `ids[i]`; `rows` has ids.size() x dim elements
// of `row_type`. An id that the table's padding id or bounds mode makes nothing (docs/tables.md)
// gets a row of zeros and does not exist.
//
// With `bag_lengths`, the ids form bags, one after another, and rows[b] receives bag b as one row
// of dim floats. Each server pools the ids of a bag that it holds, so that one row per bag and
// shard travels instead of one row per id; ids are sent as often as they occur. The client joins
// the answers in the order of the shards: it adds sums in fp32, divides means by the number of the
// bag's ids or by the sum of their weights (fp32, in order), and takes the largest of maxima. The
// same set of shards gives the same bits, another set gives the same values within rounding. Wire
// types fp16 and bf16 round the row of each shard once. An empty bag is zeros. An id that the
// padding id or the bounds mode makes nothing adds nothing; an id outside its table still counts in
// a mean's divisor.
struct PullFeature {
  const Table* table = nullptr;
  absl::Span<const uint64_t> ids;
  void* rows = nullptr;
  // The type of `rows` in memory: kFp32, or the type that travels (no conversion).
  RowType row_type = RowType::kFp32;
  // If not null, one element per id: 1 where the row was ever pushed, 0 where its initial value was
  // computed. Pooled: also one element per id.
  uint8_t* exists = nullptr;
  // Asks for what can be had: one element per row of the buffer (per id or per bag), set for all
  // features of a call or for none. A call whose deadline passes is then OK; 1 marks each row that
  // no server answered in time, or whose shard is damaged. It is zeros, `exists` is 0, and all of
  // arg_max is kArgMaxOfNothing. A bag of which some ids are missing is missing.
  uint8_t* missing = nullptr;
  // The caller has removed duplicates already, which spares the client the search where this is the
  // table's only feature. An id that occurs twice nevertheless is pulled twice.
  bool distinct = false;

  // Pooled: one length per bag, which add up to ids.size(). Empty: one row per id, and the fields
  // below must be left alone.
  absl::Span<const uint32_t> bag_lengths;
  const float* id_weights = nullptr;  // kSum and kMean: each row is multiplied by its id's weight
  BagPooling pooling = BagPooling::kSum;
  // kMax: bags x dim, the position in its bag, counted from 0, of the id that an element comes
  // from; the first of equals.
  uint32_t* arg_max = nullptr;
  uint64_t row_stride = 0;  // floats from one bag's row to the next; 0: dim
};

struct PullOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  const RowType* wire_type = nullptr;              // null: the client's
  // Every pull sees this client's own acknowledged pushes, and per shard never an older state than
  // an earlier pull of this client. The fields below ask for more where shards have several
  // replicas.
  ReadFrom read_from = ReadFrom::kDefault;  // kDefault: the client's
  // The pull sees everything that was acknowledged to any client before it began: only the primary
  // answers, and only while it is certain to be the primary. Not together with kAny.
  bool strict = false;
  // A replica answers only if it has heard from the primary within this time. Zero: unlimited.
  absl::Duration staleness_max = absl::ZeroDuration();
};

// One output of a step: gradients[i] is the gradient for ids[i]; `gradients` has ids.size() x dim
// floats. Gradients of duplicate ids are summed. Ids that the table's padding id or bounds mode
// makes nothing are skipped.
struct PushFeature {
  const Table* table = nullptr;
  absl::Span<const uint64_t> ids;
  const float* gradients = nullptr;
  // --- Many ids may share a gradient row, as the ids of a bag do: the gradient for ids[i] is
  // coefficients[i] * gradients[gradient_rows[i]], and no row is copied for it.
  const uint32_t* gradient_rows = nullptr;  // one per id; null: row i
  uint64_t gradient_row_count = 0;          // of `gradients`; required with gradient_rows
  uint64_t gradient_stride = 0;             // floats from one row to the next; 0: dim
  const float* coefficients = nullptr;      // one per id; null: 1
  // Max pooling: element d counts only where arg_max[r * dim + d] equals bag_positions[i], r being
  // the gradient row; elsewhere the gradient is 0. Set both or none.
  const uint32_t* arg_max = nullptr;
  const uint32_t* bag_positions = nullptr;
  // --- How often the item of each id was shown and clicked, for tables with shows: one per id,
  // finite and >= 0. Those of one id are added up. With `clicks` alone, each id was
  // shown once; with neither, the push says nothing about them.
  const float* shows = nullptr;
  const float* clicks = nullptr;
};

struct PushOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  bool has_learning_rate = false;
  float learning_rate = 0.0f;  // for this push and all of its tables; else each table's own
  // The rows given are the new weights themselves, and their optimizer state starts again from its
  // initial value. For import and tests. An id may then occur once per table.
  bool assign = false;
  // All gradients of the push are multiplied by this first: 1/k for accumulation, or to undo loss
  // scaling.
  float gradient_scale = 1.0f;
  // If the norm of the push, over all tables and rows after duplicates are summed, is larger than
  // this, all gradients are scaled down to it. 0: off. Rows with an element that is NaN or infinite
  // (nan_policy skip or allow) do not enter the norm.
  float clip_global_norm = 0.0f;
};

// The result of a push. A step is atomic per shard, not across shards: `shards` lists the shards
// that did not apply it.
struct PushResult {
  enum class Outcome {
    // All shards applied the push, exactly once. Shards of synchronous tables have it in their logs
    // and apply it when the step is committed (see `staged`).
    kApplied,
    // At least one shard refused for good. `shards` lists the refusals; the other shards applied
    // the push. If `shards` is empty, the push was refused as a whole and nothing was sent.
    kFailed,
    // Whether at least one shard applied the push is unknown.
    //   status kDeadlineExceeded  The deadline passed, and the push may still be applied.
    //                             Client::Retry(result) continues it; it is never applied twice.
    //   status kUnknown           An acknowledgement was lost, and the shard has since refused to
    //                             answer (fenced by a newer client, damaged, dropped). The outcome
    //                             will remain unknown.
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
  uint64_t ticket = 0;  // identifies the push for Client::Retry
  bool staged = false;  // the push has rows of synchronous tables, which EndStep applies
  std::vector<Shard> shards;
};

// Counters since Connect.
struct ClientStats {
  uint64_t ids_asked = 0;    // of pulls and lookups, with duplicates
  uint64_t ids_zeroed = 0;   // of pulls and pushes: ids outside their table, bounds mode zero
  uint64_t rows_pulled = 0;  // without duplicates
  uint64_t rows_pushed = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t messages = 0;
  uint64_t retries = 0;      // segments sent again; a segment is the part of a call for one shard
  uint64_t wrong_epoch = 0;  // segments refused because the shard has moved
  uint64_t reconnects = 0;
  // Messages of pulls and lookups to a second replica, because the answer of the first took longer
  // than usual (at most a twentieth of all messages, and a burst of 20), or because its server was
  // silent. hedges_won: the second replica answered first.
  uint64_t hedges = 0;
  uint64_t hedges_of_silent = 0;
  uint64_t hedges_won = 0;
  uint64_t rows_missing = 0;  // that calls with PullFeature::missing ended without
};

class Client {
 public:
  // `target` is "hotbed://HOST:PORT" of the coordinator, or "local:DIR" (hotbed/local.h). Waits for
  // the coordinator until the deadline of the options. InvalidArgument names an option that is out
  // of range, its value and the range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         const ClientOptions& options = {});
  virtual ~Client() = default;

  // --- Tables. A Table lives as long as its client. These calls block, at most until the client's
  // deadline. OpenTable and DropTable return NotFound for a table that does not exist; CreateTable
  // returns InvalidArgument for options that are not valid, and AlreadyExists for a name that is
  // taken, unless `if_not_exists` and the table is the same.
  virtual absl::StatusOr<const Table*> CreateTable(const TableOptions& options,
                                                   bool if_not_exists = false) = 0;
  virtual absl::StatusOr<const Table*> OpenTable(const std::string& name) = 0;
  virtual absl::Status DropTable(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<TableOptions>> ListTables() = 0;

  // --- Training. Errors that can be found before anything is sent (an id outside a bounded table,
  // NaN where the table rejects it, no features, sizes that do not match) are returned by a Future
  // that is ready; nothing was sent.
  //
  // Writes the rows of `features` to their buffers. They are there once the Future is OK; on an
  // error the buffers are unspecified. DeadlineExceeded says what was still missing.
  virtual Future<absl::Status> Pull(absl::Span<const PullFeature> features,
                                    const PullOptions& options = {}) = 0;
  // `step` must grow over the life of the session name (use the training step), with one Push per
  // table and step. A restarted trainer that repeats steps gets kApplied for those already applied.
  virtual Future<PushResult> Push(uint64_t step, absl::Span<const PushFeature> features,
                                  const PushOptions& options = {}) = 0;
  // Deletes rows of a hashed table; a bounded one is refused. A deleted row does not exist: it
  // reads as its first value, as an id that was never pushed, and begins with that value and
  // fresh optimizer state at the next push. Ids without a row are passed over. The call counts as
  // the push of the table in its step: the step must grow, and it is applied exactly once, in order
  // with this client's pushes. In synchronous tables too it takes effect at once, before pushes
  // that wait for the end of their step.
  virtual Future<PushResult> Delete(uint64_t step, const Table* table,
                                    absl::Span<const uint64_t> ids,
                                    absl::Duration deadline = absl::ZeroDuration()) = 0;
  // Continues a push that ended kIndeterminate: with the same sequence numbers, so that it is
  // applied at most once.
  virtual Future<PushResult> Retry(const PushResult& result,
                                   absl::Duration deadline = absl::ZeroDuration()) = 0;
  // The pushes that have waited at least this long for an answer, the oldest first, each with the
  // result that it would have now: `shards` lists the shards that have not answered, `status`
  // quotes the last answer or error.
  virtual std::vector<PushResult> UnansweredPushes(absl::Duration at_least) const = 0;

  // --- Steps of trainers, for synchronous tables and tables of bounded staleness (docs/tables.md,
  // Consistency of training). All calls block, at most until the deadline (zero: the client's), and
  // may be repeated after kDeadlineExceeded or kUnavailable. kAborted: the group has given this
  // trainer up, because the coordinator did not hear from it for its lease; its pushes of the step
  // are dropped, and it must join again.
  //
  // Joins ClientOptions::trainer_group. Returns the step to begin with, which is the one after the
  // group's last. All trainers of a group number their steps alike.
  virtual absl::StatusOr<uint64_t> JoinTrainers(absl::Duration deadline = absl::ZeroDuration()) = 0;
  // Waits until this trainer may begin `step`: no trainer of the group is further behind than the
  // staleness of the bounded tables allows. Push waits likewise for the tables that it names.
  virtual absl::Status BeginStep(uint64_t step, absl::Duration deadline = absl::ZeroDuration()) = 0;
  // Declares that all pushes of `step` were made. Waits until they are answered; with synchronous
  // tables, until all trainers have ended the step and every shard has applied it, so that a pull
  // sees it.
  virtual absl::Status EndStep(uint64_t step, absl::Duration deadline = absl::ZeroDuration()) = 0;
  // The other trainers continue without this one; its pushes of a step that it has not ended are
  // dropped. Closing the client leaves, too.
  virtual absl::Status LeaveTrainers(absl::Duration deadline = absl::ZeroDuration()) = 0;
  // The trainers of the group, this one included, by the coordinator's last answer, which is at
  // most a third of a lease old; 0 where this client is no member. Never waits. Trainers of
  // asynchronous tables join a group for this number alone, to plan their pushes by it
  // (hotbed/push_size.h); they begin and end no steps.
  virtual uint32_t TrainersInGroup() const = 0;

  // --- Inference: no session, no order, no view of the client's own pushes, and a budget of the
  // servers that pulls cannot take. Otherwise as Pull.
  virtual Future<absl::Status> Lookup(absl::Span<const PullFeature> features,
                                      const PullOptions& options = {}) = 0;

  virtual ClientStats Stats() const = 0;
  virtual std::string cluster_id() const = 0;
};

// A handle of one table. Thread-safe; owned by its client.
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
