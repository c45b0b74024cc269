// A few cores of one shard and what lies between them, moved by hand: messages wait until they are
// delivered, dropped or kept; logs and promises finish at once unless they are held.
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
  struct Copy {
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

  static constexpr int kCopies = 4;  // servers 1 to 4, of incarnation 10

  explicit CoreGroup(CoreOptions options = {}) : options_(options) {
    for (int i = 0; i < kCopies; ++i) {
      copies_[i].member = {static_cast<ServerId>(i + 1), 10};
      Start(i, 0, ShardMeta());
    }
  }

  void Start(int i, Epoch promised, ShardMeta meta, bool installed = false) {
    Copy& copy = copies_[i];
    copy.core = std::make_unique<ShardCore>(options_);
    copy.core->Recover(promised, std::move(meta), installed);
    copy.core->SetSelf(copy.member);
    copy.appending.clear();
    copy.applying.clear();
  }
  // A new process over the same log. Returns what it is from now on.
  Member Restart(int i) {
    Copy& copy = copies_[i];
    const Epoch promised = copy.core->promised();
    ++copy.member.incarnation;
    const std::map<Lsn, CoreEntry> log = std::exchange(copy.entries, {});
    copy.rows.clear();
    Start(i, promised, ShardMeta());
    for (const auto& [lsn, entry] : log) {
      EXPECT_TRUE(*copy.core->Replay(entry));
      copy.entries[lsn] = entry;
      copy.rows.push_back(entry.payload);
    }
    return copy.member;
  }
  ShardCore& core(int i) { return *copies_[i].core; }

  // Members by index, the primary first.
  ShardRecord Record(Epoch epoch, const std::vector<int>& members, const std::vector<int>& learners,
                     bool active) {
    ShardRecord record;
    record.epoch = epoch;
    record.revision = ++revision_;
    record.primary = copies_[members[0]].member;
    for (int m : members) record.members.push_back(copies_[m].member);
    for (int l : learners) record.learners.push_back(copies_[l].member);
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
    for (int i = 0; i < kCopies; ++i) Learn(i, record);
    DeliverAll();
    EXPECT_TRUE(core(members[0]).wants_activation());
    const ShardRecord active = Record(epoch, members, learners, true);
    for (int i = 0; i < kCopies; ++i) Learn(i, active);
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
    Copy& copy = copies_[i];
    for (bool more = true; more;) {
      ASSERT_EQ(copy.core->BrokenInvariant(), "");
      CoreReady ready;
      std::swap(ready, *copy.core->ready());
      more = false;
      if (ready.promise != 0) copy.promise = ready.promise;
      if (ready.cut_from != 0) {
        copy.entries.erase(copy.entries.lower_bound(ready.cut_from), copy.entries.end());
      }
      for (const CoreEntry& entry : ready.appends) {
        copy.entries[entry.lsn] = entry;
        copy.appending.push_back(entry);
      }
      for (const CoreSend& send : ready.sends) Send(i, send);
      for (const CoreEntry& entry : ready.applies) {
        copy.rows.push_back(entry.payload);
        copy.applying.push_back(entry.lsn);
      }
      while (!copy.hold_rows && !copy.applying.empty()) {
        copy.core->Applied(copy.applying.front());
        copy.applying.pop_front();
        more = true;
      }
      copy.replies.insert(copy.replies.end(), ready.replies.begin(), ready.replies.end());
      if (copy.promise != 0 && !copy.hold_promise) {
        copy.core->PromiseDurable(std::exchange(copy.promise, 0));
        more = true;
      }
      while (!copy.hold_log && !copy.appending.empty()) {
        const CoreEntry entry = copy.appending.front();
        copy.appending.pop_front();
        copy.core->Appended(entry.lsn, entry.ticket);
        more = true;
      }
    }
  }
  void FinishLog(int i) {
    copies_[i].hold_log = false;
    Drain(i);
  }
  void FinishRows(int i) {
    copies_[i].hold_rows = false;
    Drain(i);
  }
  void FinishPromise(int i) {
    copies_[i].hold_promise = false;
    Drain(i);
  }
  void Tick(int i) {
    core(i).Tick();
    Drain(i);
  }

  void Send(int from, const CoreSend& send) {
    if (send.kind == CoreSend::Kind::kSnapshot) return copies_[from].snapshots.push_back(send);
    Message message{from, static_cast<int>(send.to.server) - 1, send, {}};
    if (send.kind == CoreSend::Kind::kAppend) {
      for (Lsn lsn = send.prev_lsn + 1; lsn <= send.last_lsn; ++lsn) {
        ASSERT_TRUE(copies_[from].entries.contains(lsn)) << lsn;
        EXPECT_GT(lsn, core(from).retained_lsn());
        message.entries.push_back(copies_[from].entries[lsn]);
      }
    }
    network_.push_back(std::move(message));
  }
  void Deliver(const Message& message) {
    Copy& to = copies_[message.to];
    if (!(to.member == message.send.to)) return;  // another process by now
    const Member from = copies_[message.from].member;
    if (message.send.kind == CoreSend::Kind::kAppendReply) {
      to.core->OnAppendReply(from, message.send.reply);
    } else {
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
  void CopyRows(int from, int to, bool began = false) {
    ASSERT_FALSE(copies_[from].snapshots.empty());
    const CoreSend asked = copies_[from].snapshots.back();
    ASSERT_EQ(asked.to, copies_[to].member);
    ShardMeta meta = core(from).AppliedMeta();
    const Lsn lsn = meta.applied_lsn;
    ASSERT_GE(lsn, asked.last_lsn);
    core(from).SnapshotTaken(asked.to, lsn);
    Drain(from);
    ASSERT_TRUE(began || core(to).MayInstall(asked.epoch, lsn));
    copies_[to].rows = copies_[from].rows;
    copies_[to].entries.clear();
    Start(to, core(to).promised(), std::move(meta), /*installed=*/true);
    core(from).SnapshotDone(asked.to, lsn, true);
    Drain(from);
  }

  // The code that `token` was answered with at `i`; kInternal: it was not, or twice.
  SegmentCode Answer(int i, PushToken token) const {
    SegmentCode code = SegmentCode::kInternal;
    for (const CoreReply& reply : copies_[i].replies) {
      if (reply.token != token) continue;
      code = code == SegmentCode::kInternal ? reply.code : SegmentCode::kInternal;
    }
    return code;
  }
  bool Answered(int i, PushToken token) const {
    for (const CoreReply& reply : copies_[i].replies) {
      if (reply.token == token) return true;
    }
    return false;
  }

  const CoreOptions options_;
  Copy copies_[kCopies];
  std::deque<Message> network_;
  std::map<SessionId, uint64_t> seqs_;
  PushToken token_ = 100;
  uint64_t revision_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_CORE_GROUP_H_
