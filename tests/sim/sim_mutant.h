// Planted bugs outside of the shard: in the coordinators, the leases and the disks of the simulated
// cluster (those of the shard and its core are in server/protocol/core_mutant.h).
#ifndef HOTBED_TESTS_SIM_SIM_MUTANT_H_
#define HOTBED_TESTS_SIM_SIM_MUTANT_H_

namespace hotbed {

enum class SimMutant {
  kNone,
  // Coordinators.
  kRecordNotCompared,      // writes even if the record changed since it was read
  kLeaderNotCompared,      // a deposed one writes on
  kLeaseNotCompared,       // fails over by a liveness that was read, not by the one that is
  kJoinOfAnyEpoch,         // a report of a join counts in later epochs too
  kLearnerGoesInItsEpoch,  // dropping a learner does not start a new epoch
  kSwitchDropsPrimary,     // the old primary leaves in the step that replaces it
  kSilentPrimaryLeaves,    // even the primary of the last active epoch leaves for silence
  kBaseTakenFromActive,    // members of the last active epoch but one may continue
  kFirstBackWins,          // of the members of a shard that has lost all of them
  kEmptierWins,            // the one whose log ends first
  kPassedOverForgotten,    // a replica that may hold more than the one taken is overwritten
  // Servers.
  kRestartKeepsIncarnation,  // a restarted process counts as in sync
  kStrictWithoutLease,
  kLeaseFromAnswer,       // counted from when the heartbeat's answer came
  kSpillBeforeSync,       // rows reach the spill tier before the log is synced
  kReplacedByHigherOnly,  // recovery lets only records of a higher epoch replace others
  kDeletedWhileInactive,  // a replica is deleted before an epoch without it was active
  kDeletedByOldRecord,    // or by a record of an epoch not above the promised one
  // Shards that are cut.
  kCutAfterRefusal,       // a request that was refused cuts the shard when it comes once more
  kCutWithoutStandstill,  // while the primary goes on taking pushes
  kCutForgetsSessions,    // the new shard does not inherit them
  kCutLosesRow,           // the one at the cut
  kCutOfOnePart,          // a server that knows one part alone cuts its replica
  kCutReplaysOn,          // recovery gives the new shard records of after the cut
  kCutNotInCheckpoint,    // recovery finds no rows of the new shard in those of the whole
  // Shards that are merged.
  kMergeAfterRefusal,       // as kCutAfterRefusal
  kMergeWithoutStandstill,  // while the primary goes on taking pushes
  kMergeForgetsSessions,    // those of the upper part
  kMergeMixesSessions,      // a session has one sequence in both parts
  kMergeLosesRow,           // the first one of the upper part
  kMergeOfAnyEnd,           // a replica that lacks entries counts like the primary's
  kMergeNotInCheckpoint,    // recovery finds no rows of the upper part in its checkpoint
};

extern SimMutant g_sim_mutant;  // set between simulations
inline bool Planted(SimMutant mutant) { return g_sim_mutant == mutant; }

}  // namespace hotbed

#endif  // HOTBED_TESTS_SIM_SIM_MUTANT_H_
