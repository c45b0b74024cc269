// The planted bugs of the shard core (server/protocol/core_mutant.h) in a real server: chosen by
// the environment variable HOTBED_PLANTED_BUG, as those of server/shard_log/planted_bugs.h are.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "server/protocol/core_mutant.h"

namespace hotbed {
namespace {

constexpr std::pair<const char*, CoreMutant> kBugs[] = {
    {"ack_before_backups", CoreMutant::kAckBeforeBackups},
    {"sessions_not_installed", CoreMutant::kSessionsNotInstalled},
    {"promise_ignored", CoreMutant::kPromiseIgnored},
    {"joins_too_early", CoreMutant::kJoinsTooEarly},
    {"restarted_in_sync", CoreMutant::kRestartedInSync},
    {"duplicate_acked_early", CoreMutant::kDuplicateAckedEarly},
};

CoreMutant Chosen() {
  const char* const wanted = std::getenv("HOTBED_PLANTED_BUG");
  for (const auto& [name, mutant] : kBugs) {
    if (wanted != nullptr && std::strcmp(wanted, name) == 0) return mutant;
  }
  return CoreMutant::kNone;
}

}  // namespace

CoreMutant g_core_mutant = Chosen();

}  // namespace hotbed
