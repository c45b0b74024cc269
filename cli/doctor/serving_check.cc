#include "cli/doctor/serving_check.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/serving/served_copy.h"

namespace hotbed {
namespace {

constexpr uint64_t kOldMs = 60'000;  // where the table has no limit of its own
constexpr const char* kName = "serving";

}  // namespace

Check CheckServing(const v1::ServingMap& map) {
  std::string away, unanswered, fewer, old, silent;
  for (const v1::ServingServerInfo& server : map.servers()) {
    if (!server.alive()) absl::StrAppend(&silent, " ", server.name());
  }
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const v1::ServedTable& table = map.tables(i);
    const std::string& name = map.specs(i).name();
    const uint64_t limit_ms = table.staleness_ms_max() > 0 ? table.staleness_ms_max() : kOldMs;
    uint32_t ready = 0;
    std::string trouble;
    for (const ServedCopy& copy : CopiesOf(table, map)) {
      if (trouble.empty()) trouble = copy.said.trouble();
      if (copy.state != "ready") continue;
      ++ready;
      if (copy.age_ms > limit_ms) {
        absl::StrAppend(&old, " ", name, " on ", copy.server, " by ", copy.age_ms / 1000, " s");
      }
    }
    if (ready >= table.replicas()) continue;
    absl::StrAppend(ready == 0 ? &unanswered : &fewer, " ", name, " (", ready, " of ",
                    table.replicas(), trouble.empty() ? "" : ": ", trouble, ")");
  }
  const std::string next = "; see 'hotbed serve status'";
  if (!unanswered.empty()) {
    return {kName, Verdict::kFailed, absl::StrCat("no copy answers for", unanswered, next)};
  }
  std::string found;
  if (!fewer.empty()) absl::StrAppend(&found, "fewer copies than wanted:", fewer);
  if (!old.empty()) absl::StrAppend(&found, found.empty() ? "" : "; ", "behind:", old);
  if (!silent.empty()) absl::StrAppend(&found, found.empty() ? "" : "; ", "silent:", silent);
  if (!found.empty()) return {kName, Verdict::kWarning, absl::StrCat(found, next)};
  return {kName, Verdict::kOk,
          map.tables().empty() ? std::string("no table is served")
                               : absl::StrCat(map.tables_size(), " tables, all copies answer")};
}

std::vector<ProcessPorts> LiveServingProcesses(const v1::ServingMap& map) {
  std::vector<ProcessPorts> processes;
  for (const v1::ServingServerInfo& server : map.servers()) {
    if (!server.alive()) continue;
    processes.push_back({server.name(), server.address(), server.admin_address()});
  }
  return processes;
}

}  // namespace hotbed
