// The parts of the simulated cluster: plain values, no behaviour.
#ifndef HOTBED_TESTS_SIM_CLUSTER_TYPES_H_
#define HOTBED_TESTS_SIM_CLUSTER_TYPES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/clock.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "server/host/transfer/snapshot_course.h"
#include "server/host/transfer/snapshot_intake.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/replica/replica_outlet.h"
#include "server/shard/shard.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed::sim {

using Time = int64_t;  // simulated, in tenths of a millisecond
inline constexpr Time kMs = 10;
inline constexpr Time kSecond = 1000 * kMs;
using Task = std::function<void()>;
using PushId = uint32_t;  // unique in a simulation; stands for the rows of one push; 0: none
using RecordPtr = std::shared_ptr<const ShardRecord>;

inline constexpr int kServersMax = 5;
inline constexpr int kCoordinators = 2;
inline constexpr int kClients = 3;
inline constexpr int kShardsMax = 8;          // with those that were cut from others
inline constexpr int kRows = 6;               // of each shard that the table begins with
inline constexpr Time kAwaited = 1500 * kMs;  // servers that are gone, by coordinators
// A push's gradient is its PushId in one column, and 0 in the others. Pushes that one step commit
// sums have columns of their own, so that the sum tells them apart: a column per trainer and part.
inline constexpr int kPartsMax = 3;
inline constexpr int kColumns = (kClients - 1) * kPartsMax;

// Ends of the network.
inline constexpr int kNodes = 16;
inline constexpr int kStoreNode = 15;
inline int ServerNode(int server) { return server; }
inline int CoordinatorNode(int coordinator) { return 8 + coordinator; }
inline int ClientNode(int client) { return 11 + client; }

// A set of rows of one family (the shards that were one when the table was created): a bit a row.
using RowSet = uint8_t;
inline constexpr RowSet kAllRows = (1u << kRows) - 1;

struct ShardSetting {
  Durability durability = Durability::kLog;
  uint32_t replicas = 1;
  bool synchronous = false;
  bool read_replicas = false;
};

// A row: how much was added to it, and by which pushes in which order (a list that is only ever
// added to, shared by all replicas).
struct Row {
  Lsn lsn = 0;  // as stamped in the spill tier; in memory: of its last update
  uint32_t node = 0;
  uint32_t sum = 0;
  uint64_t chain = 0;  // equal if and only if the pushes are, in order
  // Its last touch, where rows expire; 0: it was deleted by its shard since, or never touched. The
  // pushes before stay in the row, which has to hold them all the same; its chain is another one.
  uint32_t touched_s = 0;
  uint64_t touched_step = 0;
};
using Rows = std::array<Row, kRows>;
struct RowNode {
  PushId push;
  uint32_t before;
};

struct PushInfo {
  uint64_t seq = 0;
  uint64_t step = 0;
  int client = 0;
  int family = 0;
  RowSet rows = 0;
  uint8_t weight = 0;
  bool nan = false;
  bool staged = false;
  // A delete: a record without gradients. A simulated row keeps it as an update like any other, so
  // that it must be there exactly once, in its place; its number travels as the learning rate.
  bool deletes = false;
  RowSet acknowledged = 0;
  RowSet may_be_lost = 0;  // their class promises no more
};

// A request for a push or a commit.
struct Request {
  int client = 0;
  int shard = 0;
  int lane = 0;  // of the shard
  Incarnation incarnation = 0;
  Epoch epoch = 0;
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  bool open = false;
  PushId push = 0;
  RowSet rows = 0;           // of the push that the shard has, as far as the client knows
  uint64_t commit_step = 0;  // not 0: a commit
};

// A message between replicas, on its way.
struct Letter {
  Member from;
  ReplicaMessage message;
};
using LetterPtr = std::shared_ptr<const Letter>;

struct LogRecord {
  int shard;
  RecordHeader header;
  std::vector<uint64_t> payload;  // ids, then gradients
};

// One shard on one disk.
struct SpilledShard {
  // It was cut from another shard here and is not durable under its own name: of the records before
  // its `log_from`, those of the parent from `from` on are its own.
  struct Inherited {
    int parent;
    size_t from;
  };

  Rows rows{};
  ShardRange range;
  std::string meta;
  bool held = false;
  bool installing = false;
  bool kept = false;    // class checkpoint: a checkpoint was kept since its rows came here
  size_t log_from = 0;  // earlier records in the log are of an earlier replica
  Lsn installed = 0;    // rows that a snapshot brought are stamped up to here
  std::optional<Inherited> cut;
  // What a kill goes back to; null: this. In class checkpoint, from a cut or a merge to the next
  // checkpoint: what recovery makes of the last one.
  std::shared_ptr<const SpilledShard> unflushed;
};

struct Disk {
  std::vector<LogRecord> log;  // one tail for all shards
  size_t synced = 0;           // records that survive the loss of the machine
  bool damaged = false;        // synced records were lost
  std::array<Epoch, kShardsMax> promised{};
  std::array<SpilledShard, kShardsMax> shards;
};

// An outgoing snapshot transfer.
struct TransferOut {
  Member to;
  uint64_t transfer = 0;
  std::unique_ptr<SnapshotCourse> course;
  SnapshotAnswers answers;
  Time deadline = 0;
};

// A call of the rows that has not ended.
struct StoreCall {
  absl::AnyInvocable<void()> end;
};

// An entry that was handed to the log.
struct EntryName {
  Epoch epoch = 0;    // 0: not known
  uint64_t hash = 0;  // of what is in it
};

// One shard in one process: the shard that ships, and its rows in memory.
struct Replica {
  std::shared_ptr<Shard> shard;  // null during an incoming transfer, whose rows are on the disk
  RecordPtr told;                // the record that the shard learned last
  Rows rows{};
  uint32_t changed = 0;  // a bit a row: since the last pass of a transfer that reads memory began
  std::string meta;      // as found
  Lsn guard = 0;         // as found: rows are stamped up to here
  Lsn applied = 0;       // as TieredStore::SetAppliedLsn says
  std::function<absl::Status(Lsn)> before_write_back;
  bool opening = true;  // until the log was replayed
  bool replaying = false;
  uint64_t state = 0;  // a hash of the rows that the last update changed, after it
  Lsn state_lsn = 0;   // of that update
  std::deque<std::shared_ptr<StoreCall>> calls;
  std::vector<EntryName> entries;  // [lsn]; handed to the log in this life
  std::vector<Epoch> logged;       // [lsn]; in the log on the disk, written in this life
  Lsn found_lsn = 0;               // the log's end when this life began
  Lsn checked_commit = 0;          // CheckCommitted
  std::list<TransferOut> outgoing;
};

// A cut or a merge that a primary asks for.
struct CutAsk {
  int shard;
  uint64_t at;
  Member asks;
  Epoch epoch;
  uint64_t number;  // unique
  int with = -1;    // not -1: the shard is to be merged with this upper neighbour
  Epoch epoch_with = 0;
  LogEnd end;  // of the logs of both
  LogEnd end_with;
};

struct QueuedAppend {
  int shard;
  LogAppend* append;
};

struct Process {  // one life of a server
  Incarnation incarnation = 0;
  Time booted = 0;
  bool paused = false;
  bool dead = false;  // its shards only end what they have in flight: nothing of it is seen
  std::vector<Task> backlog;
  ReplicaBudget budget;  // of the tails of all replicas
  std::shared_ptr<std::atomic<int64_t>> staged_bytes = std::make_shared<std::atomic<int64_t>>(0);
  std::unique_ptr<Clock> clock;
  std::unique_ptr<ShardLog> log;
  std::unique_ptr<TierHost> tiers;
  std::unique_ptr<ReplicaOutlet> outlet;
  std::unique_ptr<SnapshotIntake::Site> site;
  std::unique_ptr<SnapshotIntake> intake;
  std::array<RecordPtr, kShardsMax> known;
  std::array<RecordPtr, kShardsMax> unlearnt;  // of shards that have to be cut here first
  bool learns_again = false;
  std::array<std::optional<CutAsk>, kShardsMax> asks;  // prepared, without an answer
  std::deque<QueuedAppend> appending;
  bool append_scheduled = false;
  bool log_read_only = false;
  bool has_news = false;
  int64_t waits_until_ns = 0;  // 0: no request waits
  std::array<std::unique_ptr<Replica>, kShardsMax> replicas;
};

struct Server {
  int index = 0;
  Disk disk;
  std::unique_ptr<Process> process;  // null: dead
  Incarnation last_incarnation = 0;
  Incarnation tail_lost = 0;  // processes up to this one may have lost the end of their log
  Time disk_full_until = -1;
  double clock_rate = 1;
  Time clock_offset = 0;
};

// From one server to another: in order, until it breaks.
struct Link {
  Time last_arrival = 0;
  uint32_t generation = 0;
  bool broken = false;
};

// The state of the metadata store at one revision.
struct StoreView {
  uint64_t revision = 0;
  std::vector<RecordPtr> records;
  std::vector<bool> gone;  // by shard: merged into another one
  std::vector<std::shared_ptr<const ShardWish>> wishes;
  std::array<Incarnation, kServersMax + 1> live{};  // by server id; 0: no lease
  std::array<bool, kServersMax + 1> stops{};        // about to, by server id
};
using ViewPtr = std::shared_ptr<const StoreView>;

struct Lease {
  Incarnation incarnation = 0;  // 0: none
  Time expires = 0;
  bool stops = false;
};

struct JoinReport {
  int shard;
  Epoch epoch;
  Member member;
  friend bool operator<(const JoinReport& a, const JoinReport& b) {
    return std::tie(a.shard, a.epoch, a.member.server, a.member.incarnation) <
           std::tie(b.shard, b.epoch, b.member.server, b.member.incarnation);
  }
};

// What a process says about a replica that an earlier one of its server left behind.
struct HeldReport {
  int shard;
  HeldReplica replica;
};

// The reports on replicas in a heartbeat.
struct HeardOf {
  std::vector<HeldReport> held;
  std::vector<JoinReport> joins;
  std::vector<JoinReport> lost;
  std::vector<JoinReport> silent;
};

// A process as a coordinator knows it.
struct SeenProcess {
  Incarnation incarnation = 0;  // 0: none lives
  Time since = 0;
};
struct HeldBy {
  Incarnation incarnation = 0;
  std::array<std::optional<HeldReplica>, kShardsMax> shards;
};

struct Coordinator {
  int index = 0;
  bool alive = true;
  bool paused = false;
  int life = 0;
  std::vector<Task> backlog;
  uint64_t term = 0;  // the leader key's revision that it believes to hold; 0: none
  bool deciding = false;
  Time deciding_until = 0;
  std::set<JoinReport> joins;
  std::set<JoinReport> lost;    // replicas
  std::set<JoinReport> silent;  // members, as their primaries say
  std::array<Time, kServersMax + 1> last_live{};
  std::array<SeenProcess, kServersMax + 1> seen;  // by server id, as are the next
  std::array<HeldBy, kServersMax + 1> held;
};

struct Pending {
  uint64_t seq;
  uint64_t prev_seq;
  bool open;
  PushId push;
};

// One client's way to one lane of a shard.
struct Pipe {
  uint64_t next_seq = 0;
  uint64_t chain = 0;  // last sequence sent; 0: none by this incarnation
  bool open_next = true;
  bool waits_for_open = false;  // only the first pending push is sent until it is answered
  std::deque<Pending> pending;
  RowSet rows = 0;       // of its shard, as far as the client knows; none: it knows no such shard
  bool divided = false;  // it does not know which of its pushes came before the cut
  RecordPtr record;
  int left = 0;  // pushes to come; of a trainer: in this step
  Lsn lsn_min = 0;
  Lsn lsn_known = 0;                           // of epochs up to that of `record`
  std::array<uint32_t, kRows> seen{};          // by pulls
  std::array<uint32_t, kRows> acknowledged{};  // of this life
};

struct Client {
  int index = 0;
  Incarnation incarnation = 1;
  std::array<Pipe, kShardsMax> pipes;
};

// A pull on its way.
struct Pull {
  int client = 0;
  Incarnation incarnation = 0;
  int shard = 0;
  int lane = 0;
  int row = 0;
  bool strict = false;
  Epoch epoch = 0;
  Lsn lsn_min = 0;
  uint32_t at_least = 0;
  bool done = false;
};

// An entry that was applied somewhere at one LSN, and so is committed.
struct Committed {
  EntryName entry;
  uint64_t state = 0;  // a hash of the rows that it changed, after it
  bool rows_known = false;
  std::array<uint32_t, kRows> sums{};  // of the rows, after it
};

struct Activation {
  Epoch epoch;
  Lsn tail;
};

// The knowledge of an observer outside of the simulation about one shard.
struct Watched {
  ShardSetting setting;
  int family = 0;   // the shard of the table's beginning whose rows it has some of
  int parent = -1;  // that it was cut from
  Epoch born = 0;   // its first epoch
  RowSet born_rows = kAllRows;
  std::vector<int> children;
  int merged_into = -1;  // not -1: it is no shard any more, and perhaps a lane
  // The lane with the shard's number: the lane that it was cut from, and those cut from it.
  int lane_parent = -1;
  std::vector<int> lane_children;
  Lsn cut_lsn = 0;                   // entries up to here were of a larger shard too
  std::vector<Committed> committed;  // [lsn - 1]
  Lsn commit = 0;                    // the highest of an active primary
  std::vector<Activation> activations;
  std::map<Epoch, Member> acknowledgers;
  std::map<Epoch, Lsn> acknowledged_lsn;                             // the highest
  std::map<Epoch, std::array<uint64_t, kClients>> acknowledged_seq;  // the highest
  std::array<uint32_t, kRows> acknowledged_sum{};  // of a family: visible to strict pulls
  std::array<uint32_t, kRows> started_sum{};       // of a family
  Epoch served_epoch = 0;
  std::vector<RecordPtr> past;  // for clients that know no better
  Epoch lost_below = 0;         // entries acknowledged in lower epochs may be gone
  bool lossy = false;           // lost state that its class does not keep
  bool torn = false;            // by a replica whose rows were ahead of its log
  std::set<ServerId> kept;      // hold all that the shard lost, and nobody has given them up
  // For a family of class checkpoint: the rows' pushes in the last checkpoint of each server.
  std::array<std::array<uint32_t, kRows>, kServersMax> checkpointed{};  // nodes
  bool wish_open = false;
  // The group of a synchronous table, by family.
  uint64_t group_step = 0;
  int steps_left = 0;
  std::set<int> commit_open;                           // shards that have not answered
  std::map<uint64_t, std::vector<SessionId>> commits;  // decided, by step
};

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_CLUSTER_TYPES_H_
