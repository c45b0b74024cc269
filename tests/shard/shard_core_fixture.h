// A shard's core with what its tests do to it again and again.
#ifndef HOTBED_TESTS_SHARD_SHARD_CORE_FIXTURE_H_
#define HOTBED_TESTS_SHARD_SHARD_CORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "server/protocol/shard_core.h"

namespace hotbed {

inline constexpr Member kSelf{1, 10};

class ShardCoreTest : public testing::Test {
 protected:
  explicit ShardCoreTest(ShardCoreOptions options = {}) : core_(options) { core_.SetSelf(kSelf); }

  ShardRecord Record(Epoch epoch, uint64_t revision, bool active, Member primary = kSelf) {
    ShardRecord record;
    record.epoch = epoch;
    record.revision = revision;
    record.primary = primary;
    record.members = {primary};
    record.active = active;
    return record;
  }
  void Activate(Epoch epoch) {
    core_.LearnRecord(Record(epoch, 2 * epoch, false));
    core_.PromiseDurable(epoch);
    core_.LearnRecord(Record(epoch, 2 * epoch + 1, true));
    Take();
  }
  CoreReady Take() {
    EXPECT_EQ(core_.BrokenInvariant(), "");
    CoreReady ready;
    std::swap(ready, *core_.ready());
    for (const CoreEntry& entry : ready.appends) tickets_[entry.lsn] = entry.ticket;
    return ready;
  }
  // Under which the entry at `lsn` was handed to the log.
  uint64_t TicketOf(Lsn lsn) { return tickets_[lsn]; }
  CoreReady Push(uint64_t seq, uint64_t prev, bool open = false, PushToken token = 1,
                 SegmentCode refusal = SegmentCode::kOk) {
    CorePush push;
    push.epoch = core_.epoch();
    push.session = session_;
    push.incarnation = incarnation_;
    push.seq = seq;
    push.prev_seq = prev;
    push.open = open;
    push.refusal = refusal;
    push.token = token;
    core_.Push(push);
    return Take();
  }
  // Appends, commits and applies everything; the replies.
  std::vector<CoreReply> FinishAndReply() {
    core_.Appended(core_.last_lsn(), TicketOf(core_.last_lsn()));
    const CoreReady ready = Take();
    for (const CoreEntry& entry : ready.applies) core_.Applied(entry.lsn);
    return Take().replies;
  }

  ShardCore core_;
  std::map<Lsn, uint64_t> tickets_;
  SessionId session_ = 5;
  Incarnation incarnation_ = 1;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_SHARD_CORE_FIXTURE_H_
