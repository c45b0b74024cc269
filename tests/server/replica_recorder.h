// Records the messages and losses that a shard host gets from other servers; makes random messages.
#ifndef HOTBED_TESTS_SERVER_REPLICA_RECORDER_H_
#define HOTBED_TESTS_SERVER_REPLICA_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/random.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

inline SharedBytes OwnedBytes(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const auto* const data = reinterpret_cast<const uint8_t*>(owner->data());
  const size_t size = owner->size();
  return {std::move(owner), {data, size}};
}

inline std::string Text(const SharedBytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
}

// All fields of a message in one line: equal lines for equal messages.
inline std::string Text(const ReplicaMessage& m) {
  std::string text = absl::StrCat(
      static_cast<int>(m.kind), " ", m.shard.ToString(), " e", m.epoch, " to ", m.to.server, "/",
      m.to.incarnation, " prev ", m.prev_epoch, "/", m.prev_lsn, " commit ", m.commit, " lsn ",
      m.lsn, " ok ", m.ok, m.needs_snapshot, " applied ", m.applied, " last ", m.last, " transfer ",
      m.transfer, "/", m.chunk, " of ", m.bytes_total, " hash ", m.rolling_hash, "@", m.hash_lsn,
      " body [", Text(m.body), "]");
  for (const SharedBytes& record : m.records) absl::StrAppend(&text, " [", Text(record), "]");
  return text;
}

inline ReplicaMessage RandomMessage(Random* random, const Member& to, size_t body_bytes_max) {
  const auto text = [&](size_t bytes) { return std::string(bytes, 'a' + random->Uniform(26)); };
  ReplicaMessage m;
  m.kind = static_cast<ReplicaMessage::Kind>(1 + random->Uniform(6));
  m.shard = {static_cast<TableId>(1 + random->Uniform(3)),
             static_cast<uint32_t>(random->Uniform(5))};
  m.epoch = random->Uniform(1000);
  m.to = to;
  m.prev_epoch = random->Uniform(1000);
  m.prev_lsn = random->Next();
  m.commit = random->Next();
  m.lsn = random->Next();
  m.ok = random->Uniform(2) == 0;
  m.needs_snapshot = random->Uniform(2) == 0;
  m.applied = random->Next();
  m.last = random->Next();
  m.transfer = random->Uniform(9);
  m.chunk = random->Uniform(1000);
  m.bytes_total = random->Next();
  m.rolling_hash = random->Next();
  m.hash_lsn = random->Next();
  using Kind = ReplicaMessage::Kind;
  if (m.kind == Kind::kAppend) {
    for (uint64_t n = random->Uniform(5); n > 0; --n) {
      m.records.push_back(OwnedBytes(text(8 * (1 + random->Uniform(body_bytes_max / 8)))));
    }
  } else if (m.kind == Kind::kSnapshotRows || m.kind == Kind::kSnapshotEnd) {
    m.body = OwnedBytes(text(random->Uniform(body_bytes_max)));
  }
  return m;
}

inline bool Soon(const std::function<bool()>& condition, int ms = 10'000) {
  for (int i = 0; i < ms; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

class ReplicaRecorder final : public ReplicaSink {
 public:
  void OnReplicaMessage(const Member& from, ReplicaMessage message) override {
    std::function<void(const Member&, const ReplicaMessage&)> answer;
    {
      absl::MutexLock lock(&mu_);
      heard_.push_back(Text(message));
      chunks_.push_back(message.chunk);
      if (keeping_) kept_.push_back(message);
      answer = answer_;
    }
    if (answer) answer(from, message);
  }
  void OnPeerLost(const Member& peer) override {
    std::function<void(const Member&)> again;
    {
      absl::MutexLock lock(&mu_);
      lost_.push_back(peer);
      again = again_;
    }
    if (again) again(peer);
  }

  std::vector<std::string> heard() {
    absl::MutexLock lock(&mu_);
    return heard_;
  }
  size_t heard_count() {
    absl::MutexLock lock(&mu_);
    return heard_.size();
  }
  std::vector<uint64_t> chunks() {
    absl::MutexLock lock(&mu_);
    return chunks_;
  }
  std::vector<Member> lost() {
    absl::MutexLock lock(&mu_);
    return lost_;
  }
  // From now on messages, with their bodies, are held until LetGo.
  void Keep() {
    absl::MutexLock lock(&mu_);
    keeping_ = true;
  }
  void LetGo() {
    std::vector<ReplicaMessage> kept;
    absl::MutexLock lock(&mu_);
    keeping_ = false;
    kept.swap(kept_);
  }
  void set_answer(std::function<void(const Member&, const ReplicaMessage&)> answer) {
    absl::MutexLock lock(&mu_);
    answer_ = std::move(answer);
  }
  void set_again(std::function<void(const Member&)> again) {
    absl::MutexLock lock(&mu_);
    again_ = std::move(again);
  }

 private:
  absl::Mutex mu_;
  std::vector<std::string> heard_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> chunks_ ABSL_GUARDED_BY(mu_);
  std::vector<Member> lost_ ABSL_GUARDED_BY(mu_);
  bool keeping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<ReplicaMessage> kept_ ABSL_GUARDED_BY(mu_);
  std::function<void(const Member&, const ReplicaMessage&)> answer_ ABSL_GUARDED_BY(mu_);
  std::function<void(const Member&)> again_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_REPLICA_RECORDER_H_
