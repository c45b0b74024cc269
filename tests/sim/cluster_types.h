// The parts of the simulated cluster: plain values, no behaviour.
#ifndef HOTBED_TESTS_SIM_CLUSTER_TYPES_H_
#define HOTBED_TESTS_SIM_CLUSTER_TYPES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "server/protocol/shard_core.h"
#include "server/shard/record_tail.h"
#include "server/shard/replica_budget.h"

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
inline constexpr int kShardsMax = 4;
inline constexpr int kRows = 6;               // of each shard
inline constexpr Time kAwaited = 1500 * kMs;  // servers that are gone, by coordinators

// Ends of the network.
inline constexpr int kNodes = 16;
inline constexpr int kStoreNode = 15;
inline int ServerNode(int server) { return server; }
inline int CoordinatorNode(int coordinator) { return 8 + coordinator; }
inline int ClientNode(int client) { return 11 + client; }

// The simulated time, for the parts of the real shell.
class SimulatedClock : public Clock {
 public:
  explicit SimulatedClock(const Time* now) : now_(now) {}
  int64_t NowNs() const override { return *now_ * (kMillisecondNs / kMs); }
  int64_t WallUs() const override { return NowNs() / 1000; }
  void SleepNs(int64_t) const override {}

 private:
  const Time* const now_;
};

enum class Durability : uint8_t { kCheckpoint, kLog, kReplicated };

struct ShardSetting {
  Durability durability = Durability::kLog;
  uint32_t copies = 1;
  bool synchronous = false;
  bool read_replicas = false;
};

// A row: how much was added to it, and by which pushes in which order (a list that is only ever
// added to, shared by all replicas).
struct Row {
  Lsn lsn = 0;  // as stamped in the spill tier; of a row in memory unused
  uint32_t node = 0;
  uint32_t sum = 0;
  uint64_t chain = 0;  // equal if and only if the pushes are, in order
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
  int shard = 0;
  uint8_t rows = 0;  // a bit a row
  uint8_t weight = 0;
  bool nan = false;
  bool staged = false;
  bool acknowledged = false;
  bool may_be_lost = false;  // its class promises no more
};

// A request for a push or a commit, as it lies with a server; its place is the push's token.
struct Request {
  int client = 0;
  int shard = 0;
  Incarnation incarnation = 0;
  Epoch epoch = 0;
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  bool open = false;
  PushId push = 0;
  uint64_t commit_step = 0;  // not 0: a commit
  bool answered = false;
};

struct ReplicaMessage {
  enum class Kind : uint8_t {
    kAppend,
    kAppendReply,
    kSnapshotBegin,
    kSnapshotRows,
    kSnapshotEnd,
    kSnapshotReply
  };
  Kind kind = Kind::kAppend;
  int shard = 0;
  Member from;
  Member to;
  CoreSend send;                   // kAppend, kAppendReply
  std::vector<CoreEntry> entries;  // kAppend
  Epoch epoch = 0;                 // snapshots
  uint64_t transfer = 0;
  int chunk = 0;
  Lsn lsn = 0;
  bool ok = false;
  std::vector<std::pair<int, Row>> rows;
  std::shared_ptr<const ShardMeta> meta;
};
using ReplicaMessagePtr = std::shared_ptr<const ReplicaMessage>;

struct LogRecord {
  int shard;
  CoreEntry entry;
};

// One shard on one disk.
struct SpilledShard {
  Rows rows{};
  ShardMeta meta;
  bool held = false;
  bool installing = false;
  size_t log_from = 0;  // earlier records in the log are of an earlier replica
  // After a snapshot transfer: the highest LSN stamped in the rows, which the log must reach.
  Lsn guard = 0;
};

struct Disk {
  std::vector<LogRecord> log;  // one tail for all shards
  size_t synced = 0;           // records that survive the loss of the machine
  std::array<Epoch, kShardsMax> promised{};
  std::array<SpilledShard, kShardsMax> shards;
};

// An outgoing snapshot transfer.
struct TransferOut {
  Member to;
  Epoch epoch = 0;  // in which it began
  uint64_t transfer = 0;
  Lsn wanted = 0;  // begins when this is applied
  Lsn lsn = 0;     // 0: not begun
  int next_chunk = 0;
  int pass_end = 0;  // the chunk behind those of this pass
  Lsn above = 0;     // further passes: rows stamped above it
  Rows rows{};
  std::shared_ptr<const ShardMeta> meta;
  Time deadline = 0;
};

// An incoming snapshot transfer.
struct TransferIn {
  Member from;
  Epoch epoch = 0;
  uint64_t transfer = 0;
  Lsn lsn = 0;
  int chunks = 0;
  Time deadline = 0;
};

struct ParkedPull {
  Time deadline;
  uint64_t id;
};

// One shard in one process.
struct Replica {
  std::unique_ptr<ShardCore> core;   // null during an incoming transfer
  std::unique_ptr<RecordTail> tail;  // of `core`: records are CoreEntry
  Rows rows{};
  std::map<Lsn, PushId> staged;
  std::deque<CoreEntry> applying;
  bool apply_scheduled = false;
  Lsn guard = 0;                  // rows are stamped up to here
  bool wants_activation = false;  // as of the last event
  bool spoilt = false;            // found to differ, or damaged: serves nothing and takes nothing
  Epoch spoilt_promise = 0;       // promised at that time
  std::vector<TransferOut> outgoing;
  std::unique_ptr<TransferIn> incoming;
  std::vector<ParkedPull> parked;
};

struct QueuedAppend {
  int shard;
  CoreEntry entry;
};

struct Process {  // one life of a server
  Incarnation incarnation = 0;
  Time booted = 0;
  bool paused = false;
  std::vector<Task> backlog;
  ReplicaBudget budget;  // of the tails of all replicas
  std::array<std::unique_ptr<Replica>, kShardsMax> replicas;
  std::array<RecordPtr, kShardsMax> known;
  std::deque<QueuedAppend> appending;
  bool append_scheduled = false;
  Time lease_until = 0;  // on its own clock
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
  std::vector<std::shared_ptr<const ShardWish>> wishes;
  std::array<Incarnation, kServersMax + 1> live{};  // by server id; 0: no lease
};
using ViewPtr = std::shared_ptr<const StoreView>;

struct Lease {
  Incarnation incarnation = 0;  // 0: none
  Time expires = 0;
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

// One client's way to one shard.
struct Pipe {
  uint64_t next_seq = 0;
  uint64_t chain = 0;  // last sequence sent; 0: none by this incarnation
  bool open_next = true;
  bool waits_for_open = false;  // only the first pending push is sent until it is answered
  std::deque<Pending> pending;
  RecordPtr record;
  int left = 0;  // pushes to come; of a trainer: in this step
  Lsn lsn_min = 0;
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
  int row = 0;
  bool strict = false;
  Epoch epoch = 0;
  Lsn lsn_min = 0;
  uint32_t at_least = 0;
  bool done = false;
};

// An entry that was applied somewhere at one LSN, and so is committed.
struct Committed {
  Epoch epoch = 0;  // 0: not known
  PushToken payload = 0;
  uint64_t state = 0;  // a hash of the rows that it changed, after it
};

struct Activation {
  Epoch epoch;
  Lsn tail;
};

// The knowledge of an observer outside of the simulation about one shard.
struct Watched {
  ShardSetting setting;
  std::vector<Committed> committed;  // [lsn - 1]
  std::vector<Activation> activations;
  std::map<Epoch, Member> acknowledgers;
  std::map<Epoch, Lsn> acknowledged_lsn;  // the highest
  std::array<uint64_t, kClients> acknowledged_seq{};
  std::array<uint32_t, kRows> acknowledged_sum{};  // visible to strict pulls
  std::array<uint32_t, kRows> started_sum{};
  Epoch served_epoch = 0;
  std::vector<RecordPtr> past;  // for clients that know no better
  Epoch lost_below = 0;         // entries acknowledged in lower epochs may be gone
  bool lossy = false;           // lost state that its class does not keep
  bool torn = false;            // by a replica whose rows were ahead of its log
  std::set<ServerId> kept;      // hold all that the shard lost, and nobody has given them up
  bool wish_open = false;
  // A synchronous table's group.
  uint64_t group_step = 0;
  int steps_left = 0;
  bool commit_open = false;
  std::map<uint64_t, std::vector<SessionId>> commits;  // decided, by step
};

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_CLUSTER_TYPES_H_
