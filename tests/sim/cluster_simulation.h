// A seeded cluster around Shard and DecideShard, the code that servers and the coordinator run:
// whole shards with their requests, logs, replicas and transfers, over simulated logs, rows and
// clocks. There are servers with a disk each, two rival coordinators on one compare-and-set store,
// clients with four pushes in flight a shard, trainers of synchronous groups, a network that loses,
// doubles, delays and cuts one way, disks that run full or lose their unsynced tail, kills, pauses,
// zombies of clients and coordinators, and moves without end. One seed decides everything.
//
// The checks, and their times: docs/protocol.md, "What the simulation checks" (cluster_checks.cc).
#ifndef HOTBED_TESTS_SIM_CLUSTER_SIMULATION_H_
#define HOTBED_TESTS_SIM_CLUSTER_SIMULATION_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "tests/sim/cluster_types.h"
#include "tests/sim/weather.h"

namespace hotbed::sim {

struct ClusterStats {
  uint64_t events = 0;
  uint64_t acknowledged = 0;
  uint64_t duplicates = 0;
  uint64_t epochs = 0;
  uint64_t moves = 0;
  uint64_t faults = 0;
  uint64_t kills = 0;
  uint64_t stops = 0;  // clean ones
  uint64_t machines_lost = 0;
  uint64_t append_failures = 0;
  uint64_t snapshots = 0;
  uint64_t further_passes = 0;  // of snapshot transfers, over the rows that changed
  uint64_t transfers_broken = 0;
  uint64_t replicas_deleted = 0;
  uint64_t fail_overs = 0;
  uint64_t bases_taken = 0;
  uint64_t taken_back = 0;
  uint64_t pulls = 0;
  uint64_t strict_pulls = 0;
  uint64_t backup_pulls = 0;
  uint64_t commits = 0;
  uint64_t given_up = 0;
  uint64_t refused = 0;
  uint64_t fenced = 0;
  uint64_t writes_refused = 0;  // writes of coordinators, by compare
  uint64_t lossy = 0;           // shards that lost state which their class does not keep
  uint64_t spoilt = 0;          // damaged replicas
  uint64_t disks_lost = 0;      // disks that lost records which were synced, or more
  uint64_t passed_over = 0;     // replicas that may hold more than the one that was taken
  uint64_t cut_off = 0;         // members that left though they live, and their replicas are whole
  uint64_t cuts = 0;            // shards cut in two
  uint64_t cuts_refused = 0;
  uint64_t merges = 0;  // of two shards into one
  uint64_t merges_refused = 0;
  uint64_t expired = 0;  // rows

  void Add(const ClusterStats& other);
  std::string Text() const;
};

class ClusterSimulation {
 public:
  // `weather` must outlive it.
  explicit ClusterSimulation(uint64_t seed, const Weather& weather = Weathers().front());
  ~ClusterSimulation();

  // Runs to the end. Returns the first violation; empty: there was none.
  std::string Run();
  const ClusterStats& stats() const { return stats_; }
  void TraceTo(std::FILE* trace) { trace_ = trace; }

 private:
  // --- cluster_simulation.cc: the world
  void At(Time delay, Task task);
  Time Delay(Time mean) { return 1 + static_cast<Time>(random_.Uniform(2 * mean)); }
  bool Chance(double p) { return random_.Double() < p; }
  int Pick(size_t n) { return static_cast<int>(random_.Uniform(n)); }
  bool healed() const { return time_ >= heal_time_; }
  bool stormy() const { return !healed(); }
  void Violation(const std::string& what);
  void Trace(const std::string& line);  // only where trace_ is set
  bool Cut(int from, int to) const { return cuts_[from][to] != 0; }
  // Loses, doubles, delays.
  void Datagram(int from, int to, const Task& deliver);
  void Setup();
  bool AllDone() const;

  // --- nemesis.cc
  void Nemesis();
  void Fault();
  void KillServer(int server, bool machine);
  void StopServer(int server);
  void EndStopped(int server, Incarnation incarnation);
  void KillMerging(const ShardRecord& record);
  void LoseDisks(const ShardRecord& record);
  void DamageDisk(Server* server);
  bool MayLoseMachine(int server) const;
  bool AllWell() const;
  bool Exposed() const;
  void PauseServer(int server);
  void CutServer(int server);
  void SpoilReplica(int server, int shard);
  bool IsSpoilt(int shard, const Member& member) const;
  void DrainServer(int server);
  void CutLinks();
  void Mute(int server);
  void Triangle(const ShardRecord& record);
  void CutActivated(const ShardRecord& record);
  void Flap(int server);
  void Isolate(int server, Time duration);
  void Revive(const Member& process);
  void CutPairs(const std::vector<std::pair<int, int>>& pairs, Time duration);
  void StopCoordinator(int coordinator);
  void Heal();
  void ChangeWishes();
  void Wish(int shard, std::vector<ServerId> servers);

  // --- store_and_coordinators.cc
  ViewPtr View();
  void Changed() { view_ = nullptr; }
  bool AsWished(int shard) const;
  void Put(int shard, ShardRecord record, bool cut = false);
  void ExpireLeases();
  Task ForCoordinator(int coordinator, Task task);
  // Runs `exec` at the store, then `done` at the coordinator; each of the ways may be slow or fail.
  void AtStore(int coordinator, Task exec, Task done);
  void TickCoordinator(int coordinator);
  void Lead(int coordinator);
  void DecideAll(int coordinator, const ViewPtr& view);
  ShardDecision Decide(int coordinator, int shard, const StoreView& view);
  void Mutate(const ShardRecord& record, const ShardWish& wish, ShardDecision* decision);
  struct Write {
    int shard;
    uint64_t revision;  // as read
    ShardDecision decision;
  };
  void Commit(int coordinator, uint64_t term, const std::vector<Write>& writes);
  bool WriteHolds(const Write& write) const;
  void CountStep(int shard, const ShardRecord& before, const ShardDecision& decision);
  void CountCutOff(int shard, const ShardRecord& before, const ShardRecord& next);
  void NoteTakenBack(int shard, const ShardRecord& before, const Member& primary);
  void HeartbeatArrives(int coordinator, int server, Incarnation incarnation, Time sent,
                        const HeardOf& heard);
  void ActivationArrives(int coordinator, int shard, Member asks, Epoch epoch, Lsn tail);
  void Activate(int shard, const Member& asks, Epoch epoch, Lsn tail);
  void Spread(int coordinator, const RecordPtr& record);

  // --- simulated_server.cc: processes and what they learn
  Task ForLife(int server, Task task);
  Process* ProcessOf(const Member& member);
  const Process* ProcessOf(const Member& member) const;
  Member Self(const Server& server) const;
  Time LocalTime(const Server& server) const;
  void Boot(int server);
  bool LosesMemory(const Server& server, int shard) const;
  void EndProcess(Server* server);
  void Heartbeat(int server);
  std::optional<HeldReplica> HeldHere(const Server& server, int shard) const;
  void TickServer(int server);
  void LearnView(int server, const StoreView& view);
  void Learn(int server, const RecordPtr& record);
  bool DeletesReplica(const Server& server, const ShardRecord& record) const;
  void DeleteReplica(Server* server, const ShardRecord& record);

  // --- simulated_shard.cc: a shard's life in its process, and its requests
  class Outlet;
  struct PushCall;
  ShardOptions OptionsOf(const Server& server, int shard) const;
  void MakeOutlet(Server* server);
  Replica* OpenReplica(Server* server, int shard, bool installed,
                       std::optional<ShardOptions::Continued> continued = std::nullopt);
  void FinishOpening(const Server& server, Replica* replica);
  void FreshReplica(Server* server, int shard);
  void LoadShard(Server* server, int shard);
  void Retire(Server* server, int shard);
  // The replica, if it is open.
  static Replica* Open(const Server& server, int shard);
  // Checks the shard; to be called after each of its events.
  void AfterEvent(int server, int shard);
  void Promise(int server, int shard, Epoch epoch);
  void HasNews(int server);
  void AskActivation(const Server& server, int shard);
  void WaitsUntil(int server, int64_t ns);
  void ExpireWaiting(int server);
  void Receive(int server, const Request& request);
  void Reply(int server, const Request& request, const CoreReply& reply);

  // --- simulated_disk.cc: the log, and the rows in memory and in the spill tier
  class ServerClock;
  class Log;
  class Store;
  class Tiers;
  void MakeDisk(Server* server);
  void ScheduleAppend(int server);
  void FinishAppend(int server);
  void FailAppends(Server* server);
  void WriteRecord(Server* server, const QueuedAppend& append) const;
  void BeginLog(Server* server, int shard);
  void SyncLog(Server* server) const;
  // The entries that a log holds in the end.
  static std::vector<const LogRecord*> LastWord(const Disk& disk, int shard);
  void AddToRow(Row* row, PushId push);
  void TakeBlock(Server* server, int shard, absl::Span<const uint8_t> block);
  void WriteBackRow(Server* server, int shard, int row, Lsn applied);
  void WriteBack(Server* server, int shard);
  void WriteBackAll(Server* server, int shard);
  void SweepRows(int server, int shard);

  // --- simulated_transfers.cc: between servers
  void SendReplica(int server, ReplicaMessage message);
  void DeliverReplica(const LetterPtr& letter, uint32_t generation, bool late);
  void Break(int from, int to, const Member& peer);
  void OnReplicaMessage(int server, const Letter& letter);
  void StartTransfer(int server, int shard, const Member& to);
  void CheckTransfers(int server, int shard);
  void SendNext(int server, int shard, uint64_t number);
  void DropTransferOut(int server, int shard, const Member& to);
  void OnSnapshotReply(int server, const Letter& letter);
  class IntakeSite;
  void MakeIntake(Server* server);
  void LearnKnown(Server* server, int shard);
  void TraceMessage(int server, const ReplicaMessage& message);

  // --- simulated_cuts.cc: shards that are cut in two
  RowSet RowsOf(int shard, const ShardRange& range) const;
  RowSet RowsOf(int shard) const { return RowsOf(shard, records_[shard]->range); }
  Watched& Family(int shard) { return shards_[shards_[shard].family]; }
  const Watched& Family(int shard) const { return shards_[shards_[shard].family]; }
  static bool MayCount(const ShardRecord& record, ServerId server);
  void AskForCuts();
  void PrepareCut(int server, CutAsk ask, int attempts);
  void AskCommit(int server, int shard);
  void CutArrives(int coordinator, int server, const CutAsk& ask);
  bool CommitCut(const CutAsk& ask);
  void AddShard(const CutAsk& ask, const ShardRecord& upper);
  void CheckTiling();
  void OnCutAnswer(int server, const CutAsk& ask, bool cut);
  bool HoldsUnderAnother(const Server& server, int shard) const;
  static bool IsCutFrom(const Disk& disk, int shard);
  static bool IsPast(const Server& server, const ShardRecord& record);
  bool WasMergedElsewhere(const Server& server, int shard) const;
  bool CutFirst(Server* server, const RecordPtr& record);
  void LearnAgain(int server);
  bool CutReplica(Server* server, const RecordPtr& record, const std::vector<RecordPtr>& parts);
  void DivideDisk(Server* server, const RecordPtr& record, const std::vector<RecordPtr>& parts,
                  const SpilledShard& before);
  void FinishCut(Server* server, int shard);
  void Flushed(Disk* disk) const;
  static SpilledShard AfterKill(const SpilledShard& spilled);
  void Wipe(Server* server, int shard);
  void NoteCheckpoint(Server* server, int shard);
  void FollowCuts(int client, int lane, RowSet rows);

  // --- simulated_merges.cc: shards that are merged from two
  bool Gone(int shard) const { return shards_[shard].merged_into >= 0; }
  int OwnerOf(int lane) const;  // -1: no shard has it
  RowSet RowsOfLane(const ShardRecord& record, int lane) const;
  bool IsAsked(const Server& server, int shard) const;
  void AskForMerges();
  void PrepareMerge(int server, CutAsk ask, int attempts);
  void ReleaseParts(int server, const CutAsk& ask);
  bool CommitMerge(const CutAsk& ask);
  void NoteMerged(const CutAsk& ask);
  bool MergeFirst(Server* server, const RecordPtr& record);
  bool IsDurable(const Disk& disk, int shard) const;
  bool MergeReplicas(Server* server, const RecordPtr& record);
  SpilledShard MergeSpilled(const ShardRecord& record, const LogEnd& base,
                            const SpilledShard& lower, const SpilledShard& upper) const;
  void MergeDisk(Server* server, const ShardRecord& record, const LogEnd& base,
                 const SpilledShard& lower, const SpilledShard& upper);
  bool HoldsParts(const Server& server, const ShardRecord& record) const;
  std::optional<Lsn> EndOnDisk(const Server& server, int shard) const;

  void KeepOwnPushes(Pipe* pipe) const;

  // --- simulated_clients.cc
  static SessionId SessionOf(int client) { return 100 + static_cast<SessionId>(client); }
  bool Trains(int client, int shard) const;
  void TickClient(int client);
  void TickPipe(int client, int shard);
  void LearnMap(int client, int shard, const RecordPtr& record);
  PushId NewPush(int client, int shard, uint64_t seq);
  void Send(int client, int shard, const Pending& pending);
  void OnReply(const Request& request, const CoreReply& reply, const RecordPtr& record);
  void Settle(const Request& request, const CoreReply& reply);
  void NoteAcknowledged(const Request& request, PushId push, uint64_t seq, const CoreReply& reply);
  void RestartClient(int client);
  void TickGroup(int shard);
  void DecideCommit(int shard, bool without_last);
  void SendCommit(int shard, uint64_t step);
  void NextStep(int shard);

  // --- simulated_pulls.cc
  struct PullCall;
  void StartPull(int client, int lane);
  void PullArrives(int server, uint64_t id);
  void OnPulled(uint64_t id, uint32_t value, Lsn lsn, Epoch epoch);
  static void NoteLsn(Lsn lsn, Epoch epoch, Pipe* pipe);

  // --- cluster_checks.cc
  void CheckSessions(int shard, const ShardCore& core, const ShardLane& lane,
                     const ShardMeta& meta);
  void CheckRecord(int shard, const ShardRecord& before, const ShardRecord& after, bool cut);
  void CheckAcknowledged(int shard, const Member& by, Epoch epoch, Lsn lsn);
  void CheckActivated(int shard, Epoch epoch, Lsn tail);
  void CheckCore(const Server& server, int shard);
  void CheckCommitted(const Server& server, int shard);
  void CheckPulled(int server, const Pull& pull, uint32_t value, Lsn lsn);
  void CheckServing(const Server& server, int shard);
  void CheckApplied(int server, int shard, const Replica& replica, Lsn lsn);
  void CheckDeleted(const Server& server, const ShardRecord& reason);
  void CheckTakenBack(int shard, const ShardRecord& before, const Member& primary);
  void CheckGivenUp(const Server& server, int shard);
  bool IsMergedShort(int shard, const LogEnd& end) const;
  bool HoldsAll(ServerId server, int of) const;
  std::string FinalCheck();
  std::string CheckRows(int shard, const Replica& replica);
  std::string CheckStuck() const;
  void TraceReplicas();  // all that there are, to find why something is stuck
  // The replica in the process that the record names as primary; null: that process is down, or has
  // not opened it yet.
  const Replica* PrimaryRows(int shard) const;
  bool IsCommitted(int shard, const PushInfo& push) const;

  struct HeapItem {
    Time time;
    uint64_t order;
    uint32_t slot;
    bool operator<(const HeapItem& other) const {  // a max-heap of the earliest
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  Random random_;
  const uint64_t seed_;
  const Weather& weather_;
  std::FILE* trace_ = nullptr;
  Time time_ = 0;
  Time heal_time_ = 0;
  Time answered_time_ = 0;  // when a client last heard that its push is done
  uint64_t order_ = 0;
  std::vector<HeapItem> heap_;
  std::vector<Task> slots_;
  std::vector<uint32_t> free_slots_;

  bool fsync_ = false;  // before every acknowledgement
  double pull_rate_ = 0;
  std::vector<Server> servers_;
  std::vector<Coordinator> coordinators_;
  std::vector<Client> clients_;
  std::vector<Watched> shards_;
  uint8_t cuts_[kNodes][kNodes] = {};
  Link links_[kServersMax][kServersMax];

  // The store.
  uint64_t revision_ = 0;
  int leader_ = -1;
  uint64_t leader_term_ = 0;
  Time leader_expires_ = 0;
  uint64_t cuts_asked_ = 0;
  // By shard: the cut that the leader of a term asks for.
  std::array<std::pair<uint64_t, uint64_t>, kShardsMax> open_cuts_{};
  std::vector<RecordPtr> records_;
  std::vector<std::shared_ptr<const ShardWish>> wishes_;
  std::array<Lease, kServersMax + 1> leases_{};  // by server id
  std::vector<ViewPtr> views_;                   // for stale reads
  ViewPtr view_;

  std::vector<PushInfo> pushes_;  // by id
  std::vector<RowNode> nodes_;
  std::vector<Pull> pulls_;
  uint64_t next_transfer_ = 0;
  int faults_open_ = 0;
  std::string violation_;
  ClusterStats stats_;
};

}  // namespace hotbed::sim

#endif  // HOTBED_TESTS_SIM_CLUSTER_SIMULATION_H_
