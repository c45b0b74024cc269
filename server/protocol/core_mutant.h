// Planted bugs of the shard and its core, which prove that the simulation can fail (tests/sim).
// They exist only where HOTBED_CORE_MUTANTS is defined: the simulation compiles the sources of
// server/protocol and server/shard with it, and no library does.
#ifndef HOTBED_SERVER_PROTOCOL_CORE_MUTANT_H_
#define HOTBED_SERVER_PROTOCOL_CORE_MUTANT_H_

namespace hotbed {

enum class CoreMutant {
  kNone,
  kAckBeforeAppend,  // answered OK before its own log has it
  kSessionsForgottenOnRestart,
  kGapAccepted,          // a gap in the chain of sequences
  kDuplicateAckedEarly,  // a duplicate whose original is not committed
  // Promised epochs are ignored: records and appends of lower epochs are obeyed, and a primary
  // continues after it promised another primary's epoch.
  kPromiseIgnored,
  kPromiseNotAwaited,  // a higher epoch is acted on before its promise is durable
  // Waiters stay over a step-down and a cut, and are answered by any entry that comes at their LSN.
  kRepliesKeptOverStepDown,
  kSessionsKeptOverTruncation,
  kIncarnationsNotFenced,  // no fencing of earlier client incarnations
  kStagedAppliedAtOnce,    // before its step's commit
  kCommitTakenTwice,       // a repeated commit is logged and applied again
  kStagedForgottenOnRestart,
  kOthersCommitted,  // pushes of sessions that the commit does not name
  // --- replication
  kAckBeforeBackups,      // entries in the primary's own log count as committed
  kSessionsNotInstalled,  // Recover of a snapshot's meta (`installed`) drops the sessions
  // Entries are told apart by their LSN alone: the epoch at prev_lsn is not compared, and an entry
  // that stands there already is not replaced.
  kTruncatesByLsnAlone,
  kJoinsTooEarly,       // a learner is reported as joined, near the end, and never waited for
  kSnapshotMayRegress,  // MayInstall refuses nothing
  // Active as soon as all members hold the tail, without the record saying so: the next coordinator
  // goes back to the members of the epoch before.
  kActivationNotRecorded,
  // The state that a restarted process found on its disk, or a learner committed before, counts as
  // agreeing with any primary's log.
  kRestartedInSync,
  // A restarted process counts as proven although the primary has not committed its last entry: the
  // next primary may not have that entry.
  kProvenBeforeCommitted,
  kSentBeforeHeld,  // a follower is sent entries that the primary's own log may still refuse
  // The log's completion of an entry that was cut since counts for the entry in its place.
  kStaleAppendCounts,
  kCommitsBeforeActive,  // an epoch that was never recorded active commits
  // A follower that refuses with a hint below its known match is taken for one that answered
  // earlier: it is asked the same without end.
  kHintBehindMatchIgnored,
  // --- the shard around the core (server/shard)
  kJoinersNeedNoLease,    // strict pulls look at the lease only where the record has two members
  kStrictBeforeApplied,   // answered by a new primary whose rows lack entries of its log
  kMinLsnIgnored,         // pulls do not wait for the LSN that they name
  kRowsReadWhileGuarded,  // of a new replica, before all LSNs stamped in its rows are applied
  // --- deletes
  kDeleteIgnoredByBackups,  // only the primary's rows go
  kDeleteTakenTwice,        // a delete that was sent again deletes what was pushed since
  kExpiresByOwnClock,       // replicas that are not the primary delete rows that have expired, too
  kExpiryNotLogged,         // the primary deletes them without an entry of the log
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
