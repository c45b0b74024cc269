// The fold over a log's entries, and its undo.
#include "server/protocol/session_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace hotbed {
namespace session_state_test {

using testing::ElementsAre;
using testing::IsEmpty;

CoreEntry EntryAt(Lsn lsn, RecordKind kind, SessionId session, uint64_t seq, bool staged = false) {
  CoreEntry entry;
  entry.kind = kind;
  entry.lsn = lsn;
  entry.session = session;
  entry.incarnation = session;
  entry.seq = seq;
  entry.staged = staged;
  return entry;
}

uint64_t FirstPartOf(uint64_t step) { return step << kStepShift | 1; }

TEST(SessionStateTest, UndoInReverseRestoresEachState) {
  const std::vector<CoreEntry> entries = {
      EntryAt(1, RecordKind::kPush, 5, FirstPartOf(1), /*staged=*/true),
      EntryAt(2, RecordKind::kPush, 6, FirstPartOf(1), /*staged=*/true),
      EntryAt(3, RecordKind::kNoop, 5, FirstPartOf(2)),
      EntryAt(4, RecordKind::kStepCommit, 0, FirstPartOf(1)),
      EntryAt(5, RecordKind::kForget, 6, 0),
  };
  struct State {
    SessionTable sessions;
    Incarnation forgotten;
    uint64_t committed_step;
    size_t staged;
  };
  SessionState state;
  std::vector<State> states;
  std::vector<SessionState::Before> befores;
  for (const CoreEntry& entry : entries) {
    states.push_back(
        {state.sessions(), state.forgotten(), state.committed_step(), state.staged().size()});
    befores.push_back(state.StateBefore(entry));
    state.Fold(entry, befores.back());
  }
  EXPECT_EQ(state.sessions().size(), 1u);
  EXPECT_EQ(state.forgotten(), 6u);
  EXPECT_EQ(state.committed_step(), 1u);
  for (size_t i = entries.size(); i-- > 0;) {
    state.Undo(entries[i], befores[i]);
    EXPECT_TRUE(state.sessions() == states[i].sessions) << i;
    EXPECT_EQ(state.forgotten(), states[i].forgotten) << i;
    EXPECT_EQ(state.committed_step(), states[i].committed_step) << i;
    EXPECT_EQ(state.staged().size(), states[i].staged) << i;
  }
}

TEST(SessionStateTest, ACommitDropsWhatWasStagedForItsStepAndEarlierOnes) {
  SessionState state;
  for (Lsn lsn = 1; lsn <= 3; ++lsn) {
    const CoreEntry entry = EntryAt(lsn, RecordKind::kPush, 5, FirstPartOf(lsn), /*staged=*/true);
    state.Fold(entry, state.StateBefore(entry));
  }
  EXPECT_THAT(state.StagedOf(2, {5}), ElementsAre(2));
  EXPECT_THAT(state.StagedOf(2, {6}), IsEmpty());
  state.DropStaged(2, 4);
  EXPECT_THAT(state.StagedOf(2, {5}), IsEmpty());
  EXPECT_THAT(state.StagedOf(3, {5}), ElementsAre(3));
}

TEST(SessionStateTest, SessionsThatAreSilentLongestAreIdleFirst) {
  SessionState state;
  state.SetNow(100);
  for (const SessionId session : {7, 5, 6}) {
    state.SetNow(100 + static_cast<int64_t>(session));
    const CoreEntry entry = EntryAt(session, RecordKind::kPush, session, 1);
    state.Fold(entry, state.StateBefore(entry));
  }
  state.SetNow(1000);
  state.NoteHeard(5, *state.sessions().Find(5));
  EXPECT_THAT(state.IdleSessions(890, 9), ElementsAre(6, 7));
  EXPECT_THAT(state.IdleSessions(890, 1), ElementsAre(6));
}

}  // namespace session_state_test
}  // namespace hotbed
