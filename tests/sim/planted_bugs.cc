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

constexpr PlantedBug Core(const char* name, CoreMutant mutant, uint64_t first_seed,
                          uint32_t seeds_max, const char* weather = "mixed") {
  return {name, mutant, SimMutant::kNone, weather, first_seed, seeds_max};
}

constexpr PlantedBug Sim(const char* name, SimMutant mutant, uint64_t first_seed,
                         uint32_t seeds_max, const char* weather = "mixed") {
  return {name, CoreMutant::kNone, mutant, weather, first_seed, seeds_max};
}

// In cuts and merges of shards.
std::vector<PlantedBug> CutBugs() {
  using S = SimMutant;
  return {
      Sim("CutAfterRefusal", S::kCutAfterRefusal, 174, 300, "cuts"),
      Sim("CutWithoutStandstill", S::kCutWithoutStandstill, 1, 300, "cuts"),
      Sim("CutForgetsSessions", S::kCutForgetsSessions, 1, 300, "cuts"),
      Sim("CutLosesRow", S::kCutLosesRow, 1, 300, "cuts"),
      Sim("CutOfOnePart", S::kCutOfOnePart, 1, 300, "cuts"),
      Sim("CutReplaysOn", S::kCutReplaysOn, 1, 300, "cuts"),
      Sim("CutNotInCheckpoint", S::kCutNotInCheckpoint, 1, 300, "checkpoints"),
      Sim("MergeAfterRefusal", S::kMergeAfterRefusal, 410, 300, "merges"),
      Sim("MergeWithoutStandstill", S::kMergeWithoutStandstill, 1, 300, "merges"),
      Sim("MergeForgetsSessions", S::kMergeForgetsSessions, 1, 300, "merges"),
      Sim("MergeMixesSessions", S::kMergeMixesSessions, 1, 300, "merges"),
      Sim("MergeLosesRow", S::kMergeLosesRow, 1, 300, "merges"),
      Sim("MergeOfAnyEnd", S::kMergeOfAnyEnd, 170, 300, "merges"),
      Sim("MergeNotInCheckpoint", S::kMergeNotInCheckpoint, 1, 300, "checkpoints"),
  };
}

std::vector<PlantedBug> OtherBugs() {
  using C = CoreMutant;
  using S = SimMutant;
  return {
      Core("AckBeforeAppend", C::kAckBeforeAppend, 1, 2000),
      Core("SessionsForgottenOnRestart", C::kSessionsForgottenOnRestart, 1, 2000),
      Core("GapAccepted", C::kGapAccepted, 1, 2000),
      Core("DuplicateAckedEarly", C::kDuplicateAckedEarly, 1, 2000),
      Core("PromiseIgnored", C::kPromiseIgnored, 1, 2000),
      Core("PromiseNotAwaited", C::kPromiseNotAwaited, 3, 2000),
      Core("RepliesKeptOverStepDown", C::kRepliesKeptOverStepDown, 1, 2000),
      Core("SessionsKeptOverTruncation", C::kSessionsKeptOverTruncation, 2, 2000),
      Core("IncarnationsNotFenced", C::kIncarnationsNotFenced, 3, 2000),
      Core("StagedAppliedAtOnce", C::kStagedAppliedAtOnce, 2, 2000),
      Core("CommitTakenTwice", C::kCommitTakenTwice, 2, 2000),
      Core("StagedForgottenOnRestart", C::kStagedForgottenOnRestart, 2, 2000),
      Core("OthersCommitted", C::kOthersCommitted, 4, 2000),
      Core("AckBeforeBackups", C::kAckBeforeBackups, 2, 2000),
      Core("SessionsNotInstalled", C::kSessionsNotInstalled, 1, 2000),
      Core("TruncatesByLsnAlone", C::kTruncatesByLsnAlone, 1, 2000),
      Core("JoinsTooEarly", C::kJoinsTooEarly, 15, 2000),
      Core("SnapshotMayRegress", C::kSnapshotMayRegress, 104, 2000),
      Core("ActivationNotRecorded", C::kActivationNotRecorded, 1, 2000),
      Core("RestartedInSync", C::kRestartedInSync, 69, 2000),
      Core("ProvenBeforeCommitted", C::kProvenBeforeCommitted, 147, 1500, "ends"),
      Core("SentBeforeHeld", C::kSentBeforeHeld, 1, 2000),
      Core("StaleAppendCounts", C::kStaleAppendCounts, 11, 300, "ends"),
      Core("CommitsBeforeActive", C::kCommitsBeforeActive, 83, 900, "isolation"),
      Core("HintBehindMatchIgnored", C::kHintBehindMatchIgnored, 20, 300, "switches"),
      Sim("RecordNotCompared", S::kRecordNotCompared, 1, 2000),
      Sim("LeaderNotCompared", S::kLeaderNotCompared, 11, 2000),
      Sim("LeaseNotCompared", S::kLeaseNotCompared, 52, 300, "revivals"),
      Sim("JoinOfAnyEpoch", S::kJoinOfAnyEpoch, 2, 2000),
      Sim("LearnerGoesInItsEpoch", S::kLearnerGoesInItsEpoch, 90, 2000),
      Sim("SwitchDropsPrimary", S::kSwitchDropsPrimary, 255, 2000),
      Sim("SilentPrimaryLeaves", S::kSilentPrimaryLeaves, 11, 300, "silence"),
      Sim("BaseTakenFromActive", S::kBaseTakenFromActive, 1, 2000),
      Sim("FirstBackWins", S::kFirstBackWins, 14, 300, "disks"),
      Sim("EmptierWins", S::kEmptierWins, 1, 300, "disks"),
      Sim("PassedOverForgotten", S::kPassedOverForgotten, 16, 300, "disks"),
      Sim("RestartKeepsIncarnation", S::kRestartKeepsIncarnation, 11, 2000),
      Sim("StrictWithoutLease", S::kStrictWithoutLease, 3, 300, "isolation"),
      Core("JoinersNeedNoLease", C::kJoinersNeedNoLease, 15, 300, "isolation"),
      Core("StrictBeforeApplied", C::kStrictBeforeApplied, 1, 300, "rows"),
      Sim("LeaseFromAnswer", S::kLeaseFromAnswer, 120, 600, "leases"),
      Core("MinLsnIgnored", C::kMinLsnIgnored, 20, 2000),
      Core("RowsReadWhileGuarded", C::kRowsReadWhileGuarded, 23, 300, "rows"),
      Core("DeleteIgnoredByBackups", C::kDeleteIgnoredByBackups, 1, 300),
      Core("DeleteTakenTwice", C::kDeleteTakenTwice, 1, 300),
      Core("ExpiresByOwnClock", C::kExpiresByOwnClock, 1, 300, "expiry"),
      Core("ExpiryNotLogged", C::kExpiryNotLogged, 1, 300, "expiry"),
      Sim("SpillBeforeSync", S::kSpillBeforeSync, 50, 2000),
      Sim("ReplacedByHigherOnly", S::kReplacedByHigherOnly, 1, 0, "links"),
      Sim("DeletedWhileInactive", S::kDeletedWhileInactive, 1, 2000),
      Sim("DeletedByOldRecord", S::kDeletedByOldRecord, 4, 2000),
  };
}

}  // namespace

const std::vector<PlantedBug>& PlantedBugs() {
  static const std::vector<PlantedBug>* const bugs = [] {
    auto* const all = new std::vector<PlantedBug>(OtherBugs());
    for (const PlantedBug& bug : CutBugs()) all->push_back(bug);
    return all;
  }();
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

std::string RunApart(uint64_t seed, const Weather& weather) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);  // a failed check says so at length
    // An exception ends the process, too: a shard that it left half-way could not be closed.
    const auto run = [&]() noexcept { return ClusterSimulation(seed, weather).Run(); };
    const std::string violation = run();
    const ssize_t written =
        write(ends[1], violation.data(), std::min<size_t>(violation.size(), 4000));
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
