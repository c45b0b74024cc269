// Planted bugs of the shard core, which prove that the simulation can fail (tests/sim). They exist
// only where HOTBED_CORE_MUTANTS is defined: the simulation compiles the core's sources itself with
// it; no library has it.
#ifndef HOTBED_SERVER_CORE_MUTANT_H_
#define HOTBED_SERVER_CORE_MUTANT_H_

namespace hotbed {

enum class CoreMutant {
  kNone,
  kAckBeforeAppend,
  kSessionsForgottenOnRestart,
  kGapAccepted,
  kDuplicateAckedEarly,
  kPromiseIgnored,     // records of lower epochs are obeyed
  kPromiseNotAwaited,  // a higher epoch is acted on before its promise is durable
  kRepliesKeptOverStepDown,
  kSessionsKeptOverTruncation,
  kIncarnationsNotFenced,
  kStagedAppliedAtOnce,  // before its step's commit
  kCommitTakenTwice,     // a repeated commit is logged and applied again
  kStagedForgottenOnRestart,
  kOthersCommitted,  // whose session the commit does not name
};

#ifdef HOTBED_CORE_MUTANTS
extern CoreMutant g_core_mutant;  // set by the test between simulations
inline bool Mutated(CoreMutant mutant) { return g_core_mutant == mutant; }
#else
constexpr bool Mutated(CoreMutant) { return false; }
#endif

}  // namespace hotbed

#endif  // HOTBED_SERVER_CORE_MUTANT_H_
