// A seeded world around ShardCore: two servers with disks, a coordinator that moves and re-elects,
// clients with four pushes in flight, a network that loses, doubles and reorders, crashes with and
// without the unfinished tail of the log, disks that run full, records that arrive late. One seed
// decides everything; time is a number.
//
// Two of the clients are trainers of a group: their pushes are staged, and a step is committed when
// both have ended it, or without the one that is given up.
//
// One shard. A move hands the old primary's disk to the new one once the old one has stepped down
// or died: a group of one has this instead of replication.
#ifndef HOTBED_TESTS_SIM_SHARD_SIMULATION_H_
#define HOTBED_TESTS_SIM_SHARD_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "server/protocol/shard_core.h"

namespace hotbed {

using PushId = uint64_t;  // unique in a simulation; stands for the rows of one push

struct SimulationStats {
  uint64_t events = 0;
  uint64_t acknowledged = 0;
  uint64_t duplicates = 0;
  uint64_t epochs = 0;
  uint64_t crashes = 0;
  uint64_t append_failures = 0;
  uint64_t refused = 0;   // NaN, or too late for its step
  uint64_t commits = 0;   // acknowledged
  uint64_t given_up = 0;  // trainers left out of a commit
};

class ShardSimulation {
 public:
  explicit ShardSimulation(uint64_t seed);
  ~ShardSimulation();

  // Runs to the end. Returns the first violation; empty: there was none.
  std::string Run();
  const SimulationStats& stats() const { return stats_; }

 private:
  static constexpr int kServers = 2;
  static SessionId SessionOf(int client) { return 100 + static_cast<SessionId>(client); }

  struct StoredRows {
    std::string meta;
    std::vector<PushId> rows;
  };
  struct Disk {
    Epoch promised = 0;
    std::vector<std::pair<CoreEntry, PushId>> log;  // all of it, from LSN 1
    StoredRows stored;
  };
  struct Message {
    int client = 0;
    Incarnation incarnation = 0;
    Epoch epoch = 0;
    uint64_t seq = 0;
    uint64_t prev_seq = 0;
    bool open = false;
    bool nan = false;
    PushId push = 0;
    uint64_t commit_step = 0;  // not 0: a commit
  };
  struct Process {  // one life of a server
    Incarnation incarnation = 0;
    std::unique_ptr<ShardCore> core;
    std::vector<PushId> rows;
    std::map<Lsn, PushId> staged;
    std::deque<CoreEntry> appending;
    std::deque<CoreEntry> applying;
    bool append_scheduled = false;
    bool apply_scheduled = false;
    bool wants_activation = false;  // as of the last event
    bool holds_data = false;        // false: the other server's disk is to be taken over first
    std::map<PushToken, Message> waiting;
  };
  struct Server {
    int index = 0;
    Disk disk;
    std::unique_ptr<Process> process;  // null: dead
    Incarnation last_incarnation = 0;
    int64_t disk_full_until = -1;
  };
  struct Pending {
    uint64_t seq;
    uint64_t prev_seq;
    bool open;
    bool nan;
    PushId push;
  };
  struct Client {
    int index = 0;
    Incarnation incarnation = 1;
    uint64_t next_seq = 0;
    uint64_t chain = 0;  // last sequence sent; 0: none by this incarnation
    bool open_next = true;
    bool waits_for_open = false;  // only the first pending push is sent until it is answered
    std::deque<Pending> pending;
    ShardRecord record;
    int left = 0;  // pushes to come; of a trainer: in this step
    bool trains = false;
  };
  using Task = std::function<void()>;
  struct Event {
    int64_t time;
    uint64_t order;
    Task task;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void At(int64_t delay, Task task);
  int64_t Delay(int64_t mean) { return 1 + static_cast<int64_t>(random_.Uniform(2 * mean)); }
  bool Chance(double p) { return random_.Double() < p; }
  bool healed() const { return time_ >= heal_time_; }
  void Violation(const std::string& what);
  // Loses, doubles, delays.
  void Network(const Task& deliver);

  // Coordinator.
  void Coordinate();
  void Elect(int server);
  void Spread(const ShardRecord& record);
  void TryActivate(int server, Incarnation incarnation, Epoch epoch);

  // Servers.
  void Boot(int server);
  void Crash(int server);
  void Learn(int server, const ShardRecord& record);
  bool TakeOver(int server);
  void LoadDisk(Server* server);
  void Receive(int server, Message message);
  void Drain(int server);
  void ScheduleAppend(int server);
  void FinishAppend(int server);
  void ScheduleApply(int server);
  void FinishApply(int server);
  void Reply(int server, const CoreReply& reply);
  void CheckServing(const Server& server);
  void WriteBack(int server);
  void TickServer(int server);
  // Runs `task` if this life of the server has not ended.
  Task ForLife(int server, Task task);

  // Clients.
  void TickClient(int client);
  void Send(int client, const Pending& pending);
  void OnReply(int client, Incarnation incarnation, const Message& message, const CoreReply& reply);
  void Settle(Client* client, PushId push, const CoreReply& reply);
  void RestartClient(int client);

  // The group of trainers.
  void TickGroup();
  void DecideCommit(bool without_last);
  void SendCommit(uint64_t step);
  void NextStep();
  // Applies a committed entry, as the shell does.
  void ApplyEntry(Process* process, const CoreEntry& entry, PushId push);

  bool Committed(PushId push) const;  // a staged one, by a commit that was decided
  std::string FinalCheck();

  Random random_;
  int64_t time_ = 0;
  int64_t heal_time_ = 0;
  uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::vector<Server> servers_;
  std::vector<Client> clients_;
  ShardRecord record_;                // the metadata store's
  std::vector<ShardRecord> history_;  // for late deliveries
  int data_holder_ = 0;               // the server with the newest disk
  Epoch active_epoch_max_ = 0;
  PushToken next_token_ = 0;
  PushId next_push_ = 0;
  std::map<PushId, uint64_t> seq_of_;  // all issued
  std::set<PushId> nan_pushes_;
  uint64_t group_step_ = 0;
  int steps_left_ = 0;
  bool commit_open_ = false;                                 // decided, and not acknowledged yet
  std::map<uint64_t, std::vector<SessionId>> commits_;       // decided, by step
  std::map<PushId, std::pair<uint64_t, SessionId>> staged_;  // step and session of each issued
  std::set<PushId> acknowledged_;
  std::set<PushId> acknowledged_staged_;
  std::map<SessionId, uint64_t> acknowledged_seq_;
  std::string violation_;
  SimulationStats stats_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SIM_SHARD_SIMULATION_H_
