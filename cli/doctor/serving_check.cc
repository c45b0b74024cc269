#include "cli/doctor/serving_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/serving/served_copy.h"

namespace hotbed {
namespace {

constexpr uint64_t kOldMs = 60'000;  // where the table has no limit of its own
constexpr const char* kName = "serving";

void AddFinding(const char* thing, const std::string& which, std::string* found) {
  if (which.empty()) return;
  absl::StrAppend(found, found->empty() ? "" : "; ", thing, which);
}

std::string AwaitedVersions(const v1::ServingMap& map) {
  std::string awaited;
  for (const v1::AwaitedVersion& one : map.awaited()) {
    absl::StrAppend(&awaited, " ", VersionName(map, one.number()), " on ", one.server(), " (",
                    one.trouble(), ")");
  }
  return awaited;
}

}  // namespace

Check CheckServing(const v1::ServingMap& map) {
  std::string unanswered, fewer, old, silent, waiting;
  std::set<std::string> troubles;  // of servers whose copies answer
  for (const v1::ServingServerInfo& server : map.servers()) {
    if (!server.alive()) absl::StrAppend(&silent, " ", server.name());
  }
  for (int i = 0; i < std::min(map.tables_size(), map.specs_size()); ++i) {
    const v1::ServedTable& table = map.tables(i);
    const std::string& name = map.specs(i).name();
    const uint64_t limit_ms = table.staleness_ms_max() > 0 ? table.staleness_ms_max() : kOldMs;
    std::vector<uint32_t> ready_copies(std::max<uint32_t>(table.parts(), 1));  // per part
    std::string trouble;
    for (const ServedCopy& copy : CopiesOf(table, map)) {
      if (trouble.empty()) trouble = copy.said.trouble();
      if (copy.state != "ready") continue;
      if (!copy.said.trouble().empty()) {
        troubles.insert(absl::StrCat(" ", copy.server, ": ", copy.said.trouble()));
      }
      if (copy.part.part < ready_copies.size()) ++ready_copies[copy.part.part];
      if (copy.age_ms > limit_ms) {
        absl::StrAppend(&old, " ", name, " on ", copy.server, " is ", copy.age_ms,
                        " ms old (allowed: ", limit_ms, ")");
      }
    }
    if (table.has_beside() && !table.beside().leaves()) {
      std::set<uint32_t> placed;
      const v1::ServedTable cut = BesideOf(table);
      for (const ServedCopy& copy : CopiesOf(cut, map)) placed.insert(copy.part.part);
      if (placed.size() < ServedPartsOf(cut)) {
        absl::StrAppend(&waiting, " ", name, " (", placed.size(), " of ", ServedPartsOf(cut), ")");
      }
    }
    const auto least = std::min_element(ready_copies.begin(), ready_copies.end());
    // The further copies of a hot table come and go.
    const uint32_t wanted = table.replicas_max() > 0 ? table.replicas_min() : table.replicas();
    if (*least >= wanted) continue;
    const std::string part =
        ready_copies.size() == 1
            ? std::string()
            : absl::StrCat(" part ", least - ready_copies.begin() + 1, " of ", ready_copies.size());
    absl::StrAppend(*least == 0 ? &unanswered : &fewer, " ", name, part, " (", *least, " of ",
                    wanted, trouble.empty() ? "" : ": ", trouble, ")");
  }
  const std::string next = "; see 'hotbed serve status'";
  if (!unanswered.empty()) {
    return {kName, Verdict::kFailed, absl::StrCat("no copy answers for", unanswered, next)};
  }
  std::string found;
  AddFinding("fewer copies than wanted:", fewer, &found);
  AddFinding("parts that wait for serving servers with room beside the present ones:", waiting,
             &found);
  AddFinding("versions that parts which are to follow do not hold:", AwaitedVersions(map), &found);
  AddFinding("too old:", old, &found);
  AddFinding("in trouble:", absl::StrJoin(troubles, ","), &found);
  AddFinding("silent:", silent, &found);
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
