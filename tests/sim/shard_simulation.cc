// The world: events, coordinator, clients, the last check. The servers are in simulated_servers.cc.
#include "tests/sim/shard_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr int64_t kHealTime = 6000;
constexpr int64_t kEndTime = 30000;
constexpr int kClients = 3;
constexpr int kPushesAClient = 40;
constexpr int kGroupSteps = 12;
constexpr int kPartsMax = 3;
constexpr size_t kPipeline = 4;

}  // namespace

ShardSimulation::ShardSimulation(uint64_t seed) : random_(seed), heal_time_(kHealTime) {
  servers_.resize(kServers);
  clients_.resize(kClients);
  for (int i = 0; i < kServers; ++i) {
    servers_[i].index = i;
    Boot(i);
  }
  for (int i = 0; i < kClients; ++i) {
    clients_[i].index = i;
    clients_[i].trains = i > 0;
    clients_[i].left = clients_[i].trains ? 0 : kPushesAClient;
    At(Delay(20), [this, i] { TickClient(i); });
  }
  steps_left_ = kGroupSteps;
  NextStep();
  At(Delay(20), [this] { TickGroup(); });
  Elect(0);
  At(50, [this] { Coordinate(); });
  const int faults = 4 + static_cast<int>(random_.Uniform(8));
  for (int i = 0; i < faults; ++i) {
    At(100 + static_cast<int64_t>(random_.Uniform(kHealTime - 200)), [this] {
      const int server = static_cast<int>(random_.Uniform(kServers));
      switch (random_.Uniform(5)) {
        case 0:
        case 1:
          return Crash(server);
        case 2:
          servers_[server].disk_full_until = time_ + Delay(200);
          return;
        case 3:
          return RestartClient(static_cast<int>(random_.Uniform(kClients)));
        default:
          return Elect(static_cast<int>(random_.Uniform(kServers)));
      }
    });
  }
}

ShardSimulation::~ShardSimulation() = default;

void ShardSimulation::At(int64_t delay, Task task) {
  events_.push({time_ + delay, order_++, std::move(task)});
}

void ShardSimulation::Violation(const std::string& what) {
  if (violation_.empty()) violation_ = absl::StrCat("time ", time_, ": ", what);
}

void ShardSimulation::Network(const Task& deliver) {
  if (!healed() && Chance(0.04)) return;
  const int copies = !healed() && Chance(0.05) ? 2 : 1;
  for (int i = 0; i < copies; ++i) At(Chance(0.9) ? Delay(5) : Delay(150), deliver);
}

std::string ShardSimulation::Run() {
  while (!events_.empty() && violation_.empty()) {
    Event event = events_.top();
    events_.pop();
    if (event.time > kEndTime) break;
    time_ = event.time;
    ++stats_.events;
    event.task();
    const bool all_done = std::all_of(clients_.begin(), clients_.end(), [](const Client& c) {
      return c.left == 0 && c.pending.empty();
    });
    if (all_done && steps_left_ == 0 && !commit_open_ && healed()) break;
  }
  if (violation_.empty()) violation_ = FinalCheck();
  return violation_;
}

// --- coordinator

void ShardSimulation::Elect(int server) {
  if (servers_[server].process == nullptr) return;
  record_.epoch += 1;
  record_.revision += 1;
  record_.active = false;
  record_.primary = {static_cast<ServerId>(server) + 1, servers_[server].process->incarnation};
  record_.members = {record_.primary};
  stats_.epochs = record_.epoch;
  Spread(record_);
}

void ShardSimulation::Spread(const ShardRecord& record) {
  history_.push_back(record);
  for (int i = 0; i < kServers; ++i) Network([this, i, record] { Learn(i, record); });
}

void ShardSimulation::Coordinate() {
  At(Delay(60), [this] { Coordinate(); });
  const Server& owner = servers_[record_.primary.server - 1];
  const bool alive =
      owner.process != nullptr && owner.process->incarnation == record_.primary.incarnation;
  if (!alive) {
    // The disk decides which server can continue: a dead holder is awaited, or its disk is moved.
    Elect(Chance(0.5) ? owner.index : static_cast<int>(random_.Uniform(kServers)));
  } else {
    Spread(record_);
  }
  if (!healed() && Chance(0.3)) {
    const ShardRecord late = history_[random_.Uniform(history_.size())];
    for (int i = 0; i < kServers; ++i) Network([this, i, late] { Learn(i, late); });
  }
}

void ShardSimulation::TryActivate(int server, Incarnation incarnation, Epoch epoch) {
  const Member asks{static_cast<ServerId>(server) + 1, incarnation};
  if (record_.epoch != epoch || !(record_.primary == asks) || record_.active) return;
  record_.active = true;
  record_.revision += 1;
  Spread(record_);
}

// --- clients

void ShardSimulation::TickClient(int client) {
  At(Delay(15), [this, client] { TickClient(client); });
  Client& c = clients_[client];
  if (c.record.epoch == 0 || Chance(0.1)) c.record = record_;
  if (c.left > 0 && !c.waits_for_open && c.pending.size() < kPipeline && Chance(0.7)) {
    c.left -= 1;
    if (!c.trains) {
      c.next_seq += (1 + random_.Uniform(3)) << kStepShift;
    } else {
      c.next_seq = std::max(c.next_seq, group_step_ << kStepShift) + 1;
    }
    const bool nan = Chance(0.03);
    const Pending push{c.next_seq, c.chain, std::exchange(c.open_next, false), nan, ++next_push_};
    c.chain = push.seq;
    seq_of_[push.push] = push.seq;
    if (c.trains) staged_[push.push] = {push.seq >> kStepShift, SessionOf(client)};
    if (nan) nan_pushes_.insert(push.push);
    c.pending.push_back(push);
    Send(client, push);
  }
  for (size_t i = 0; i < (c.waits_for_open ? 1 : c.pending.size()); ++i) {
    if (Chance(0.12)) Send(client, c.pending[i]);
  }
}

void ShardSimulation::Send(int client, const Pending& pending) {
  const Client& c = clients_[client];
  if (c.record.epoch == 0) return;
  const int server = static_cast<int>(c.record.primary.server) - 1;
  const Message message{client,           c.incarnation, c.record.epoch, pending.seq,
                        pending.prev_seq, pending.open,  pending.nan,    pending.push};
  Network([this, server, message] { Receive(server, message); });
}

void ShardSimulation::Settle(Client* client, PushId push, const CoreReply& reply) {
  const auto it = std::find_if(client->pending.begin(), client->pending.end(),
                               [push](const Pending& p) { return p.push == push; });
  if (it == client->pending.end()) {
    ++stats_.duplicates;
    return;
  }
  if (client->waits_for_open) {
    ++stats_.duplicates;
  } else if (reply.code == SegmentCode::kOk) {
    ++stats_.acknowledged;
    // Pushes that the group's last commits left out are not expected in the rows.
    const auto staged = staged_.find(push);
    if (staged == staged_.end()) acknowledged_.insert(push);
    if (staged != staged_.end()) acknowledged_staged_.insert(push);
    uint64_t& last = acknowledged_seq_[SessionOf(client->index)];
    last = std::max(last, it->seq);
  } else {
    ++stats_.refused;
  }
  client->pending.erase(it);
  if (!std::exchange(client->waits_for_open, false)) return;
  // Pushes that the previous life had sent are done, by one of the two lives.
  while (!client->pending.empty() && client->pending.front().seq <= reply.last_seq) {
    client->pending.pop_front();
  }
}

void ShardSimulation::OnReply(int client, Incarnation incarnation, const Message& message,
                              const CoreReply& reply) {
  if (message.commit_step != 0) {
    if (reply.code != SegmentCode::kOk || message.commit_step != group_step_) return;
    if (std::exchange(commit_open_, false)) {
      ++stats_.commits;
      NextStep();
    }
    return;
  }
  Client& c = clients_[client];
  if (c.incarnation != incarnation) return;
  switch (reply.code) {
    case SegmentCode::kOk:
    case SegmentCode::kNanGradient:
    case SegmentCode::kStepOver:
      return Settle(&c, message.push, reply);
    case SegmentCode::kWrongEpoch:
      if (record_.epoch > c.record.epoch) c.record = record_;
      return;
    case SegmentCode::kGap: {
      // A new life says 0 and learns where its last one came to in the step.
      const bool opens = !c.pending.empty() && message.open && c.pending.front().open &&
                         c.pending.front().push == message.push;
      if (opens && reply.last_seq < message.seq) c.pending.front().prev_seq = reply.last_seq;
      for (const Pending& push : c.pending) {
        if (push.prev_seq == reply.last_seq) Send(client, push);
      }
      return;
    }
    case SegmentCode::kUnknownSession:
      if (!c.pending.empty()) c.pending.front().open = true;
      return;
    case SegmentCode::kFenced:
      return Violation("the newest incarnation of a client was fenced");
    default:
      return;  // sent again by the timer
  }
}

// The client's process dies and comes back as a new incarnation: from a journal of its pushes, or
// computing the same steps again. In the second case the gradients differ, so pushes of the life
// before that are still in the network must be fenced once the new one has opened.
void ShardSimulation::RestartClient(int client) {
  Client& c = clients_[client];
  c.incarnation += 1;
  c.record = ShardRecord();
  c.open_next = c.pending.empty();
  const bool waited = std::exchange(c.waits_for_open, false);
  if (c.pending.empty()) {
    c.chain = 0;
    return;
  }
  c.pending.front().open = true;
  c.pending.front().prev_seq = 0;
  if (!waited && Chance(0.5)) return;
  c.waits_for_open = true;
  for (Pending& push : c.pending) {
    push.push = ++next_push_;
    push.nan = false;
    seq_of_[push.push] = push.seq;
    if (c.trains) staged_[push.push] = {push.seq >> kStepShift, SessionOf(client)};
  }
}

// --- the group of trainers

void ShardSimulation::NextStep() {
  if (steps_left_ == 0) return;
  --steps_left_;
  group_step_ += 1 + random_.Uniform(2);
  for (Client& client : clients_) {
    if (client.trains) client.left = static_cast<int>(random_.Uniform(kPartsMax + 1));
  }
}

void ShardSimulation::TickGroup() {
  At(Delay(20), [this] { TickGroup(); });
  if (commit_open_) {
    if (Chance(0.4)) SendCommit(group_step_);
    return;
  }
  if (commits_.contains(group_step_)) return;  // the last one
  bool ended = true;
  bool all_but_last = true;
  for (const Client& client : clients_) {
    const bool has_ended = !client.trains || (client.left == 0 && client.pending.empty());
    ended = ended && has_ended;
    if (&client != &clients_.back()) all_but_last = all_but_last && has_ended;
  }
  const bool gives_up = all_but_last && Chance(0.02);
  if (ended || gives_up) DecideCommit(gives_up);
}

void ShardSimulation::DecideCommit(bool without_last) {
  std::vector<SessionId>& sessions = commits_[group_step_];
  for (const Client& client : clients_) {
    if (client.trains) sessions.insert(sessions.begin(), SessionOf(client.index));
  }
  if (without_last) {
    sessions.erase(sessions.begin());
    clients_.back().left = 0;
    ++stats_.given_up;
  }
  commit_open_ = true;
  for (int copies = 0; copies < 2; ++copies) SendCommit(group_step_);
  // One that arrives late, after others.
  if (!healed() && Chance(0.3)) {
    At(Delay(400), [this, step = group_step_] { SendCommit(step); });
  }
}

void ShardSimulation::SendCommit(uint64_t step) {
  if (record_.epoch == 0) return;
  Message message;
  message.epoch = record_.epoch;
  message.commit_step = step;
  const int server = static_cast<int>(record_.primary.server) - 1;
  Network([this, server, message] { Receive(server, message); });
}

// --- the end

bool ShardSimulation::Committed(PushId push) const {
  const auto& [step, session] = staged_.at(push);
  const auto commit = commits_.find(step);
  return commit != commits_.end() &&
         std::find(commit->second.begin(), commit->second.end(), session) != commit->second.end();
}

std::string ShardSimulation::FinalCheck() {
  for (const Client& client : clients_) {
    if (client.left > 0 || !client.pending.empty()) {
      return absl::StrCat("stuck: client ", client.index, " has ", client.pending.size(),
                          " pushes unanswered at the end");
    }
  }
  Server& holder = servers_[data_holder_];
  if (holder.process == nullptr || !holder.process->holds_data) {
    Boot(data_holder_);
    LoadDisk(&holder);
  }
  std::map<PushId, int> applied;
  for (const PushId push : holder.process->rows) ++applied[push];
  for (const auto& [push, times] : applied) {
    if (times > 1) return absl::StrCat("push ", push, " was applied ", times, " times");
    if (!seq_of_.contains(push)) return absl::StrCat("push ", push, " was never sent");
    if (nan_pushes_.contains(push)) return absl::StrCat("push ", push, " has NaN and was applied");
    const auto staged = staged_.find(push);
    if (staged != staged_.end() && !Committed(push)) {
      return absl::StrCat("push ", push, " was applied, and no commit names it");
    }
  }
  for (const PushId push : acknowledged_staged_) {
    if (Committed(push) && !applied.contains(push)) {
      return absl::StrCat("push ", push, " was staged and committed, and is lost");
    }
  }
  for (const PushId push : acknowledged_) {
    if (!applied.contains(push)) return absl::StrCat("push ", push, " was acknowledged and lost");
  }
  return "";
}

}  // namespace hotbed
