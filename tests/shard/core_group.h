// A few cores of one shard and the network between them, moved by hand: messages wait until they
// are delivered, dropped or kept; logs and promises finish at once unless they are held.
#ifndef HOTBED_TESTS_SHARD_CORE_GROUP_H_
#define HOTBED_TESTS_SHARD_CORE_GROUP_H_

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "server/protocol/shard_core.h"

namespace hotbed {

class CoreGroup : public testing::Test {
 protected:
  struct Message {
    int from = 0;
    int to = 0;
    CoreSend send;
    std::vector<CoreEntry> entries;
  };
  struct Replica {
    Member member;
    std::unique_ptr<ShardCore> core;
    std::map<Lsn, CoreEntry> entries;  // as handed over, cut ones gone
    std::deque<CoreEntry> appending;   // of a log that is held
    std::vector<PushToken> rows;       // payloads as they were applied
    std::vector<CoreReply> replies;
    std::vector<CoreSend> snapshots;  // asked for
    Epoch promise = 0;                // asked for and held
    std::deque<Lsn> applying;         // of rows that are held
    bool hold_log = false;
    bool hold_rows = false;
    bool hold_promise = false;
  };

  static constexpr int kReplicas = 4;  // servers 1 to 4, of incarnation 10

  explicit CoreGroup(ShardCoreOptions options = {}) : options_(options) {
    for (int i = 0; i < kReplicas; ++i) {
      replicas_[i].member = {static_cast<ServerId>(i + 1), 10};
      Start(i, 0, ShardMeta());
    }
  }

  void Start(int i, Epoch promised, ShardMeta meta, bool installed = false) {
    Replica& replica = replicas_[i];
    replica.core = std::make_unique<ShardCore>(options_);
    replica.core->Recover(promised, std::move(meta), installed);
    replica.core->SetSelf(replica.member);
    replica.appending.clear();
    replica.applying.clear();
  }
  // A new process over the same log. Returns what it is from now on.
  Member Restart(int i) {
    Replica& replica = replicas_[i];
    const Epoch promised = replica.core->promised();
    ++replica.member.incarnation;
    const std::map<Lsn, CoreEntry> log = std::exchange(replica.entries, {});
    replica.rows.clear();
    Start(i, promised, ShardMeta());
    for (const auto& [lsn, entry] : log) {
      EXPECT_TRUE(*replica.core->Replay(entry));
      replica.entries[lsn] = entry;
      replica.rows.push_back(entry.payload);
    }
    return replica.member;
  }
  ShardCore& core(int i) { return *replicas_[i].core; }

  // Members by index, the primary first.
  ShardRecord Record(Epoch epoch, const std::vector<int>& members, const std::vector<int>& learners,
                     bool active) {
    ShardRecord record;
    record.epoch = epoch;
    record.revision = ++revision_;
    record.primary = replicas_[members[0]].member;
    for (int m : members) record.members.push_back(replicas_[m].member);
    for (int l : learners) record.learners.push_back(replicas_[l].member);
    record.active = active;
    return record;
  }
  void Learn(int i, const ShardRecord& record) {
    core(i).LearnRecord(record);
    Drain(i);
  }
  // Everybody in it hears of it, all messages arrive, and it is recorded active.
  void Establish(Epoch epoch, const std::vector<int>& members,
                 const std::vector<int>& learners = {}) {
    const ShardRecord record = Record(epoch, members, learners, false);
    for (int i = 0; i < kReplicas; ++i) Learn(i, record);
    DeliverAll();
    EXPECT_TRUE(core(members[0]).wants_activation());
    const ShardRecord active = Record(epoch, members, learners, true);
    for (int i = 0; i < kReplicas; ++i) Learn(i, active);
    DeliverAll();
  }

  // A push of `session` with the next sequence; its payload is its token. The token.
  PushToken Push(int i, SessionId session = 5) {
    CorePush push;
    push.epoch = core(i).epoch();
    push.session = session;
    push.incarnation = 1;
    push.prev_seq = seqs_[session];
    push.seq = ++seqs_[session];
    push.open = push.prev_seq == 0;
    push.token = ++token_;
    core(i).Push(push);
    Drain(i);
    return push.token;
  }

  void Drain(int i) {
    Replica& replica = replicas_[i];
    for (bool more = true; more;) {
      ASSERT_EQ(replica.core->BrokenInvariant(), "");
      CoreReady ready;
      std::swap(ready, *replica.core->ready());
      more = false;
      if (ready.promise != 0) replica.promise = ready.promise;
      if (ready.cut_from != 0) {
        replica.entries.erase(replica.entries.lower_bound(ready.cut_from), replica.entries.end());
      }
      for (const CoreEntry& entry : ready.appends) {
        replica.entries[entry.lsn] = entry;
        replica.appending.push_back(entry);
      }
      for (const CoreSend& send : ready.sends) Send(i, send);
      for (const CoreEntry& entry : ready.applies) {
        replica.rows.push_back(entry.payload);
        replica.applying.push_back(entry.lsn);
      }
      while (!replica.hold_rows && !replica.applying.empty()) {
        replica.core->Applied(replica.applying.front());
        replica.applying.pop_front();
        more = true;
      }
      replica.replies.insert(replica.replies.end(), ready.replies.begin(), ready.replies.end());
      if (replica.promise != 0 && !replica.hold_promise) {
        replica.core->PromiseDurable(std::exchange(replica.promise, 0));
        more = true;
      }
      while (!replica.hold_log && !replica.appending.empty()) {
        const CoreEntry entry = replica.appending.front();
        replica.appending.pop_front();
        replica.core->Appended(entry.lsn, entry.ticket);
        more = true;
      }
    }
  }
  void FinishLog(int i) {
    replicas_[i].hold_log = false;
    Drain(i);
  }
  void FinishRows(int i) {
    replicas_[i].hold_rows = false;
    Drain(i);
  }
  void FinishPromise(int i) {
    replicas_[i].hold_promise = false;
    Drain(i);
  }
  void Tick(int i) {
    core(i).Tick();
    Drain(i);
  }

  void Send(int from, const CoreSend& send) {
    if (send.kind == CoreSend::Kind::kSnapshot) return replicas_[from].snapshots.push_back(send);
    Message message{from, static_cast<int>(send.to.server) - 1, send, {}};
    if (send.kind == CoreSend::Kind::kAppend) {
      for (Lsn lsn = send.prev_lsn + 1; lsn <= send.last_lsn; ++lsn) {
        ASSERT_TRUE(replicas_[from].entries.contains(lsn)) << lsn;
        EXPECT_GT(lsn, core(from).retained_lsn());
        message.entries.push_back(replicas_[from].entries[lsn]);
      }
    }
    network_.push_back(std::move(message));
  }
  void Deliver(const Message& message) {
    Replica& to = replicas_[message.to];
    if (!(to.member == message.send.to)) return;  // another process by now
    const Member from = replicas_[message.from].member;
    if (message.send.kind == CoreSend::Kind::kAppendReply) {
      to.core->OnAppendReply(from, message.send.reply);
    } else {
      const ShardRecord& record = core(message.from).record();
      const bool newer = record.epoch == message.send.epoch && record.epoch > to.core->epoch();
      if (newer && hear_records_) Learn(message.to, record);
      CoreAppend append;
      append.epoch = message.send.epoch;
      append.prev_epoch = message.send.prev_epoch;
      append.prev_lsn = message.send.prev_lsn;
      append.commit = message.send.commit;
      append.entries = message.entries;
      to.core->OnAppend(from, append);
    }
    Drain(message.to);
  }
  // Delivers all, and what comes of it, but for those that `keep` keeps back: they are returned.
  std::vector<Message> DeliverAll(const std::function<bool(const Message&)>& keep = nullptr) {
    std::vector<Message> kept;
    for (int steps = 0; !network_.empty(); ++steps) {
      if (steps == 100'000) {
        ADD_FAILURE() << "messages without end";
        break;
      }
      const Message message = std::move(network_.front());
      network_.pop_front();
      if (keep != nullptr && keep(message)) {
        kept.push_back(message);
      } else {
        Deliver(message);
      }
    }
    return kept;
  }
  static std::function<bool(const Message&)> To(int i) {
    return [i](const Message& message) { return message.to == i; };
  }
  static std::function<bool(const Message&)> Any() {
    return [](const Message&) { return true; };
  }

  // The snapshot that was asked of `from` last arrives at `to` whole; `began`: `to` has let it
  // begin before.
  void SendSnapshot(int from, int to, bool began = false) {
    ASSERT_FALSE(replicas_[from].snapshots.empty());
    const CoreSend asked = replicas_[from].snapshots.back();
    ASSERT_EQ(asked.to, replicas_[to].member);
    ShardMeta meta = core(from).AppliedMeta();
    const Lsn lsn = meta.applied_lsn;
    ASSERT_GE(lsn, asked.last_lsn);
    core(from).SnapshotTaken(asked.to, lsn);
    Drain(from);
    ASSERT_TRUE(began || core(to).MayInstall(asked.epoch, lsn));
    replicas_[to].rows = replicas_[from].rows;
    replicas_[to].entries.clear();
    Start(to, core(to).promised(), std::move(meta), /*installed=*/true);
    core(from).SnapshotDone(asked.to, lsn, true);
    Drain(from);
  }

  // The code that `token` was answered with at `i`; kInternal: it was not, or twice.
  SegmentCode Answer(int i, PushToken token) const {
    SegmentCode code = SegmentCode::kInternal;
    for (const CoreReply& reply : replicas_[i].replies) {
      if (reply.token != token) continue;
      code = code == SegmentCode::kInternal ? reply.code : SegmentCode::kInternal;
    }
    return code;
  }
  bool Answered(int i, PushToken token) const {
    for (const CoreReply& reply : replicas_[i].replies) {
      if (reply.token == token) return true;
    }
    return false;
  }

  const ShardCoreOptions options_;
  Replica replicas_[kReplicas];
  std::deque<Message> network_;
  std::map<SessionId, uint64_t> seqs_;
  PushToken token_ = 100;
  uint64_t revision_ = 0;
  bool hear_records_ = true;  // a replica hears of an epoch's record before its first append
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_CORE_GROUP_H_
