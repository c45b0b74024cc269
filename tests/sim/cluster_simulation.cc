// The world: events, the network of datagrams, and how a run begins and ends.
#include "tests/sim/cluster_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed::sim {
namespace {

constexpr double kLate = 0.05;              // of datagrams
constexpr Time kStuckAfter = 10 * kSecond;  // without an answered push (I13)

}  // namespace

void ClusterStats::Add(const ClusterStats& other) {
  // All fields are counters of one type.
  auto* to = reinterpret_cast<uint64_t*>(this);
  const auto* from = reinterpret_cast<const uint64_t*>(&other);
  static_assert(sizeof(ClusterStats) % sizeof(uint64_t) == 0);
  for (size_t i = 0; i < sizeof(ClusterStats) / sizeof(uint64_t); ++i) to[i] += from[i];
}

std::string ClusterStats::Text() const {
  return absl::StrCat(
      events, " events, ", acknowledged, " acknowledged, ", duplicates, " answers to duplicates, ",
      epochs, " epochs, ", moves, " moves, ", faults, " faults (", kills, " kills, ", stops,
      " stops, ", machines_lost, " machines lost), ", append_failures, " failed appends, ",
      snapshots, " snapshots with ", further_passes, " further passes, ", transfers_broken,
      " broken off, ", replicas_deleted, " replicas deleted, ", fail_overs, " fail-overs, ",
      bases_taken, " bases and ", taken_back, " members taken back, ", pulls, " pulls (",
      strict_pulls, " strict, ", backup_pulls, " of others than primaries), ", commits,
      " commits, ", given_up, " trainers given up, ", refused, " refused, ", fenced, " fenced, ",
      writes_refused, " writes refused by compare, ", lossy, " shards lost what they may, ", spoilt,
      " replicas spoilt, ", cut_off, " members cut off, ", disks_lost, " disks lost, ", passed_over,
      " replicas passed over, ", cuts, " shards cut and ", cuts_refused, " cuts refused, ", merges,
      " shards merged and ", merges_refused, " merges refused, ", expired, " rows expired");
}

ClusterSimulation::ClusterSimulation(uint64_t seed, const Weather& weather)
    : random_(seed), seed_(seed), weather_(weather) {
  heap_.reserve(1024);
  pushes_.resize(1);
  nodes_.resize(1);
  heal_time_ = weather_.heal_time;
  Setup();
}

ClusterSimulation::~ClusterSimulation() {
  for (Server& server : servers_) EndProcess(&server);
}

void ClusterSimulation::At(Time delay, Task task) {
  uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.push_back(std::move(task));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(task);
  }
  heap_.push_back({time_ + delay, order_++, slot});
  std::push_heap(heap_.begin(), heap_.end());
}

void ClusterSimulation::Violation(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = absl::StrCat("at ", time_ / kMs, " ms: ", what);
  if (trace_ != nullptr) Trace(absl::StrCat("VIOLATION ", what));
}

void ClusterSimulation::Trace(const std::string& line) {
  std::fprintf(trace_, "%8.1f %s\n", static_cast<double>(time_) / kMs, line.c_str());
}

void ClusterSimulation::Datagram(int from, int to, const Task& deliver) {
  if (Cut(from, to)) return;
  if (stormy() && Chance(0.03)) return;
  const int copies = stormy() && Chance(0.04) ? 2 : 1;
  const bool news = from >= CoordinatorNode(0) && from < CoordinatorNode(kCoordinators);
  const double in_time = 1 - (news ? weather_.news_late : kLate);
  for (int i = 0; i < copies; ++i) {
    const Time delay = healed() || Chance(in_time) ? Delay(4 * kMs) : Delay(600 * kMs);
    At(delay, [this, from, to, deliver] {
      if (!Cut(from, to)) deliver();
    });
  }
}

void ClusterSimulation::Setup() {
  const int servers = 3 + Pick(3);
  const int shards = 2 + Pick(3);
  fsync_ = Chance(0.5);
  pull_rate_ = Chance(0.25) ? 0.6 : 0.06;
  if (weather_.pull_rate > 0) pull_rate_ = weather_.pull_rate;
  servers_.resize(servers);
  coordinators_.resize(kCoordinators);
  clients_.resize(kClients);
  shards_.resize(shards);
  records_.resize(shards);
  wishes_.resize(shards);
  for (int i = 0; i < servers; ++i) {
    servers_[i].index = i;
    servers_[i].clock_rate = 0.99 + 0.02 * random_.Double();
    servers_[i].clock_offset = Pick(1000) * kSecond;
    Boot(i);
    leases_[i + 1] = {1, 3 * kSecond};
  }
  for (int shard = 0; shard < shards; ++shard) {
    shards_[shard].family = shard;
    ShardSetting& setting = shards_[shard].setting;
    const double dice = random_.Double();
    const double checkpointed = weather_.checkpointed;
    setting.durability = dice < checkpointed          ? Durability::kCheckpoint
                         : dice < checkpointed + 0.25 ? Durability::kLog
                                                      : Durability::kReplicated;
    setting.replicas = setting.durability == Durability::kReplicated ? 2 + Pick(2) : 1;
    setting.synchronous = setting.durability != Durability::kCheckpoint && Chance(0.3);
    setting.read_replicas = Chance(weather_.read_replicas);
    std::vector<ServerId> wanted;
    for (uint32_t i = 0; i < setting.replicas; ++i) wanted.push_back((shard + i) % servers + 1);
    Wish(shard, wanted);
    ShardRecord record;
    record.shard = {1, static_cast<uint32_t>(shard)};
    record.range = {static_cast<uint64_t>(shard) * kRows, (shard + 1ull) * kRows, 0, kColumns};
    record.epoch = 1;
    for (const ServerId server : wanted) record.members.push_back({server, 1});
    record.primary = record.members.front();
    Put(shard, record);
    if (setting.synchronous) {
      shards_[shard].steps_left = 8;
      NextStep(shard);
      At(Delay(20 * kMs), [this, shard] { TickGroup(shard); });
    }
  }
  for (int i = 0; i < kCoordinators; ++i) {
    coordinators_[i].index = i;
    At(Delay(50 * kMs), [this, i] { TickCoordinator(i); });
  }
  for (int i = 0; i < kClients; ++i) {
    clients_[i].index = i;
    for (int shard = 0; shard < shards; ++shard) {
      clients_[i].pipes[shard].rows = kAllRows;
      clients_[i].pipes[shard].left = Trains(i, shard)            ? clients_[i].pipes[shard].left
                                      : weather_.reader && i == 0 ? 0
                                                                  : weather_.pushes;
    }
    At(Delay(50 * kMs), [this, i] { TickClient(i); });
  }
  Nemesis();
}

bool ClusterSimulation::AllDone() const {
  for (const Client& client : clients_) {
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      const Pipe& pipe = client.pipes[shard];
      if (pipe.left > 0 || !pipe.pending.empty()) return false;
    }
  }
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    if (Gone(static_cast<int>(shard))) continue;
    if (shards_[shard].steps_left > 0 || !shards_[shard].commit_open.empty()) return false;
    if (!records_[shard]->active || shards_[shard].wish_open) return false;
    const Replica* const primary = PrimaryRows(static_cast<int>(shard));
    if (primary == nullptr) return false;  // it is on its way up
    if (primary->applied < primary->shard->core().last_lsn()) return false;
  }
  return true;
}

std::string ClusterSimulation::Run() {
  while (!heap_.empty() && violation_.empty()) {
    const HeapItem item = heap_.front();
    if (item.time > std::max(heal_time_, answered_time_) + kStuckAfter) break;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const Task task = std::move(slots_[item.slot]);
    free_slots_.push_back(item.slot);
    time_ = item.time;
    ExpireLeases();
    task();
    if ((++stats_.events & 63) == 0 && healed() && AllDone()) break;
  }
  if (violation_.empty()) violation_ = FinalCheck();
  for (Server& server : servers_) EndProcess(&server);
  return violation_;
}

}  // namespace hotbed::sim
