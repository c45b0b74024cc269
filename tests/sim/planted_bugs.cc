#include "tests/sim/planted_bugs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_simulation.h"

namespace hotbed {

CoreMutant g_core_mutant = CoreMutant::kNone;
SimMutant g_sim_mutant = SimMutant::kNone;

namespace sim {
namespace {

constexpr PlantedBug Core(const char* name, CoreMutant mutant, uint32_t seeds_max) {
  return {name, mutant, SimMutant::kNone, seeds_max};
}

constexpr PlantedBug Sim(const char* name, SimMutant mutant, uint32_t seeds_max) {
  return {name, CoreMutant::kNone, mutant, seeds_max};
}

}  // namespace

const std::vector<PlantedBug>& PlantedBugs() {
  using C = CoreMutant;
  using S = SimMutant;
  static const std::vector<PlantedBug>* const bugs = new std::vector<PlantedBug>{
      Core("AckBeforeAppend", C::kAckBeforeAppend, 2000),
      Core("SessionsForgottenOnRestart", C::kSessionsForgottenOnRestart, 2000),
      Core("GapAccepted", C::kGapAccepted, 2000),
      Core("DuplicateAckedEarly", C::kDuplicateAckedEarly, 2000),
      Core("PromiseIgnored", C::kPromiseIgnored, 2000),
      Core("PromiseNotAwaited", C::kPromiseNotAwaited, 2000),
      Core("RepliesKeptOverStepDown", C::kRepliesKeptOverStepDown, 2000),
      Core("SessionsKeptOverTruncation", C::kSessionsKeptOverTruncation, 2000),
      Core("IncarnationsNotFenced", C::kIncarnationsNotFenced, 2000),
      Core("StagedAppliedAtOnce", C::kStagedAppliedAtOnce, 2000),
      Core("CommitTakenTwice", C::kCommitTakenTwice, 2000),
      Core("StagedForgottenOnRestart", C::kStagedForgottenOnRestart, 2000),
      Core("OthersCommitted", C::kOthersCommitted, 2000),
      Core("AckBeforeBackups", C::kAckBeforeBackups, 2000),
      Core("SessionsNotInstalled", C::kSessionsNotInstalled, 2000),
      Core("TruncatesByLsnAlone", C::kTruncatesByLsnAlone, 2000),
      Core("JoinsTooEarly", C::kJoinsTooEarly, 2000),
      Core("SnapshotMayRegress", C::kSnapshotMayRegress, 2000),
      Core("ActivationNotRecorded", C::kActivationNotRecorded, 2000),
      Core("RestartedInSync", C::kRestartedInSync, 2000),
      Core("ProvenBeforeCommitted", C::kProvenBeforeCommitted, 2000),
      Core("SentBeforeHeld", C::kSentBeforeHeld, 2000),
      Core("StaleAppendCounts", C::kStaleAppendCounts, 2000),
      Core("CommitsBeforeActive", C::kCommitsBeforeActive, 2000),
      Sim("RecordNotCompared", S::kRecordNotCompared, 2000),
      Sim("LeaderNotCompared", S::kLeaderNotCompared, 2000),
      Sim("LeaseNotCompared", S::kLeaseNotCompared, 2000),
      Sim("JoinOfAnyEpoch", S::kJoinOfAnyEpoch, 2000),
      Sim("LearnerGoesInItsEpoch", S::kLearnerGoesInItsEpoch, 2000),
      Sim("SwitchDropsPrimary", S::kSwitchDropsPrimary, 2000),
      Sim("BaseTakenFromActive", S::kBaseTakenFromActive, 2000),
      Sim("RestartKeepsIncarnation", S::kRestartKeepsIncarnation, 2000),
      Sim("StrictWithoutLease", S::kStrictWithoutLease, 2000),
      Sim("JoinersNeedNoLease", S::kJoinersNeedNoLease, 20000),
      Sim("StrictBeforeApplied", S::kStrictBeforeApplied, 2000),
      Sim("LeaseFromAnswer", S::kLeaseFromAnswer, 2000),
      Sim("MinLsnIgnored", S::kMinLsnIgnored, 2000),
      Sim("RowsReadWhileGuarded", S::kRowsReadWhileGuarded, 2000),
      Sim("SpillBeforeSync", S::kSpillBeforeSync, 2000),
      Sim("ReplacedByHigherOnly", S::kReplacedByHigherOnly, 2000),
      Sim("DeletedWhileInactive", S::kDeletedWhileInactive, 2000),
      Sim("DeletedByOldRecord", S::kDeletedByOldRecord, 2000),
  };
  return *bugs;
}

bool Plant(const std::string& name) {
  g_core_mutant = CoreMutant::kNone;
  g_sim_mutant = SimMutant::kNone;
  if (name.empty()) return true;
  for (const PlantedBug& bug : PlantedBugs()) {
    if (name != bug.name) continue;
    g_core_mutant = bug.core;
    g_sim_mutant = bug.sim;
    return true;
  }
  return false;
}

std::string RunApart(uint64_t seed) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);  // a failed check says so at length
    const std::string violation = ClusterSimulation(seed).Run();
    const ssize_t written = write(ends[1], violation.data(), std::min<size_t>(violation.size(), 4000));
    _exit(written < 0 ? 1 : 0);
  }
  close(ends[1]);
  char buffer[4000];
  const ssize_t length = read(ends[0], buffer, sizeof(buffer));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return absl::StrCat("a check failed (signal ", WTERMSIG(status), ")");
  return std::string(buffer, length > 0 ? static_cast<size_t>(length) : 0);
}

}  // namespace sim
}  // namespace hotbed
