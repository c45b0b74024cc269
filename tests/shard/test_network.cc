#include "tests/shard/test_network.h"

#include <string>
#include <tuple>

#include "absl/time/clock.h"

namespace hotbed {
namespace {

// As it comes off a wire: bytes of its own, at any address.
SharedBytes CopyOf(const SharedBytes& bytes, size_t shift) {
  auto copy = std::make_shared<std::string>(shift, 'x');
  copy->append(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
  const auto* data = reinterpret_cast<const uint8_t*>(copy->data()) + shift;
  const size_t size = bytes.bytes.size();
  return {std::move(copy), {data, size}};
}

}  // namespace

class TestNetwork::Port : public ReplicaNetwork {
 public:
  Port(TestNetwork* network, const Member& self) : network_(network), self_(self) {}
  void Send(ReplicaMessage message) override { network_->Queue(self_, std::move(message)); }
  uint64_t QueuedBytes(const Member& to) const override { return network_->QueuedBytes(self_, to); }
  void SetPeers(const std::vector<Peer>&) override {}

 private:
  TestNetwork* const network_;
  const Member self_;
};

TestNetwork::TestNetwork(uint64_t seed) : random_(seed), thread_([this] { Deliver(); }) {}

TestNetwork::~TestNetwork() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  thread_.join();
}

ReplicaNetwork* TestNetwork::Attach(const Member& self, ReplicaSink* sink) {
  absl::MutexLock lock(&mu_);
  sinks_[self.server] = {self, sink};
  ports_.push_back(std::make_unique<Port>(this, self));
  return ports_.back().get();
}

void TestNetwork::Detach(const Member& self) {
  absl::MutexLock lock(&mu_);
  sinks_.erase(self.server);
  const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return delivering_ != self.server; };
  mu_.Await(absl::Condition(&free));
  for (auto& [pair, queue] : queues_) {
    if (pair.first == self.server) queue.clear();
    if (pair.second == self.server && !queue.empty()) Cut(pair);
  }
}

void TestNetwork::SetFault(std::function<bool(const Member&, const ReplicaMessage&)> stop) {
  absl::MutexLock lock(&mu_);
  stop_ = std::move(stop);
}

void TestNetwork::SetDamage(std::function<void(ReplicaMessage*)> damage) {
  absl::MutexLock lock(&mu_);
  damage_ = std::move(damage);
}

void TestNetwork::CutOneIn(uint64_t messages) {
  absl::MutexLock lock(&mu_);
  cut_one_in_ = messages;
}

void TestNetwork::DelayMost(int64_t us) {
  absl::MutexLock lock(&mu_);
  delay_us_ = us;
}

void TestNetwork::Hold(ServerId from, ServerId to, bool held) {
  absl::MutexLock lock(&mu_);
  if (held) {
    held_.insert({from, to});
  } else {
    held_.erase({from, to});
  }
}

uint64_t TestNetwork::delivered() const {
  absl::MutexLock lock(&mu_);
  return delivered_;
}

uint64_t TestNetwork::cuts() const {
  absl::MutexLock lock(&mu_);
  return cuts_;
}

void TestNetwork::Queue(const Member& from, ReplicaMessage message) {
  absl::MutexLock lock(&mu_);
  for (SharedBytes& record : message.records) record = CopyOf(record, random_.Uniform(9));
  if (!message.body.bytes.empty()) message.body = CopyOf(message.body, random_.Uniform(9));
  queues_[{from.server, message.to.server}].emplace_back(from, std::move(message));
}

uint64_t TestNetwork::QueuedBytes(const Member& from, const Member& to) const {
  absl::MutexLock lock(&mu_);
  const auto it = queues_.find({from.server, to.server});
  uint64_t bytes = 0;
  if (it == queues_.end()) return bytes;
  for (const auto& [member, message] : it->second) bytes += message.body.bytes.size();
  return bytes;
}

void TestNetwork::Cut(const Pair& pair) {
  auto& queue = queues_[pair];
  std::set<Incarnation> told;
  for (const auto& [from, message] : queue) {
    if (told.insert(message.to.incarnation).second) lost_.emplace_back(pair.first, message.to);
  }
  queue.clear();
  ++cuts_;
}

void TestNetwork::Deliver() {
  for (;;) {
    ReplicaSink* sink = nullptr;
    Member from;
    ReplicaMessage message;
    bool lost = false;
    int64_t delay_us = 0;
    {
      absl::MutexLock lock(&mu_);
      delivering_ = 0;
      if (stops_) return;
      std::vector<Pair> ready;
      for (const auto& [pair, queue] : queues_) {
        if (!queue.empty() && !held_.contains(pair)) ready.push_back(pair);
      }
      if (!lost_.empty()) {
        lost = true;
        const auto [server, peer] = lost_.front();
        lost_.erase(lost_.begin());
        const auto it = sinks_.find(server);
        if (it == sinks_.end()) continue;
        sink = it->second.second;
        from = peer;
        delivering_ = server;
      } else if (!ready.empty()) {
        const Pair pair = ready[random_.Uniform(ready.size())];
        auto& queue = queues_[pair];
        const auto it = sinks_.find(pair.second);
        const bool stopped = stop_ && stop_(queue.front().first, queue.front().second);
        if (it == sinks_.end() || stopped || (cut_one_in_ != 0 && random_.OneIn(cut_one_in_))) {
          Cut(pair);
          continue;
        }
        std::tie(from, message) = std::move(queue.front());
        queue.pop_front();
        // A life before is not told what is meant for a later one, nor the other way round.
        if (!(it->second.first == message.to)) {
          lost_.emplace_back(pair.first, message.to);
          continue;
        }
        if (damage_) damage_(&message);
        sink = it->second.second;
        delivering_ = pair.second;
        ++delivered_;
        if (delay_us_ > 0) delay_us = static_cast<int64_t>(random_.Uniform(delay_us_));
      }
    }
    if (sink == nullptr) {
      absl::SleepFor(absl::Microseconds(50));
      continue;
    }
    if (delay_us > 0) absl::SleepFor(absl::Microseconds(delay_us));
    if (lost) {
      sink->OnPeerLost(from);
    } else {
      sink->OnReplicaMessage(from, std::move(message));
    }
  }
}

}  // namespace hotbed
