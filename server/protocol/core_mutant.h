// Planted bugs of the shard core, which prove that the simulation can fail (tests/sim). Those of
// the reliability page's table (section 4) carry its words. They exist only where
// HOTBED_CORE_MUTANTS is defined: the simulation compiles the core's sources itself with it; no
// library has it.
#ifndef HOTBED_SERVER_PROTOCOL_CORE_MUTANT_H_
#define HOTBED_SERVER_PROTOCOL_CORE_MUTANT_H_

namespace hotbed {

enum class CoreMutant {
  kNone,
  kAckBeforeAppend,  // answered OK before its own log has it
  kSessionsForgottenOnRestart,
  kGapAccepted,          // a gap in the chain of sequences
  kDuplicateAckedEarly,  // a duplicate whose original is not committed
  // Promised epochs are ignored: records and appends of lower epochs are obeyed, and a primary goes
  // on after it promised another one's epoch.
  kPromiseIgnored,
  kPromiseNotAwaited,  // a higher epoch is acted on before its promise is durable
  // A1: waiters stay over a step-down and a cut, and are answered by whatever comes at their LSN.
  kRepliesKeptOverStepDown,
  kSessionsKeptOverTruncation,
  kIncarnationsNotFenced,  // no fencing of earlier client incarnations
  kStagedAppliedAtOnce,    // before its step's commit
  kCommitTakenTwice,       // a repeated commit is logged and applied again
  kStagedForgottenOnRestart,
  kOthersCommitted,  // whose session the commit does not name
  // --- replication
  kAckBeforeBackups,      // what the primary's own log holds is committed
  kSessionsNotInstalled,  // Recover of a snapshot's meta (`installed`) drops the sessions
  // Entries are told apart by their LSN: neither is the epoch at prev_lsn compared, nor an entry
  // replaced that stands there already.
  kTruncatesByLsnAlone,
  kJoinsTooEarly,       // A2: a learner is reported as joined, near the end, and never waited for
  kSnapshotMayRegress,  // MayInstall refuses nothing
  // Active as soon as all members hold the tail, without the record saying so: the next coordinator
  // goes back to the members of the epoch before.
  kActivationNotRecorded,
  // What a restarted process found on its disk, or a learner has heard to be committed before,
  // counts as agreeing with any primary's log.
  kRestartedInSync,
  kProvenBeforeCommitted,  // what a restarted process found agrees with a primary that has not
                           // committed it yet: the next primary may not have it
  kSentBeforeHeld,         // a follower is sent what the primary's own log may still refuse
  kStaleAppendCounts,      // the log's completion of an entry that was cut since counts for the one
                           // that stands there now
  kCommitsBeforeActive,    // an epoch that was never recorded active commits
  // A follower that lacks what was sent, and says to go on from before what it was seen to hold, is
  // taken for one that spoke earlier: asked the same for ever.
  kHintBehindMatchIgnored,
};

#ifdef HOTBED_CORE_MUTANTS
extern CoreMutant g_core_mutant;  // set by the test between simulations
inline bool Mutated(CoreMutant mutant) { return g_core_mutant == mutant; }
inline bool AnyMutant() { return g_core_mutant != CoreMutant::kNone; }
#else
constexpr bool Mutated(CoreMutant) { return false; }
constexpr bool AnyMutant() { return false; }
#endif

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_CORE_MUTANT_H_
