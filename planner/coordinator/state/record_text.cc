#include "planner/coordinator/state/record_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hotbed {

std::string MemberText(const Member& member) {
  return absl::StrCat("s", member.server, "/", member.incarnation);
}

std::string MembersText(const std::vector<Member>& members) {
  if (members.empty()) return "-";
  return absl::StrJoin(members, " ", [](std::string* out, const Member& member) {
    absl::StrAppend(out, MemberText(member));
  });
}

std::string LogEndText(const LogEnd& end) {
  if (end.lsn == 0) return "nothing";
  return absl::StrCat("LSN ", end.lsn, " of epoch ", end.epoch);
}

std::string RecordText(const ShardRecord& record) {
  return absl::StrCat(
      "primary ", MemberText(record.primary), ", members ", MembersText(record.members),
      ", learners ", MembersText(record.learners), ", epoch ", record.epoch,
      record.active ? " active" : "", record.passed_over.empty() ? "" : ", passed over",
      absl::StrJoin(record.passed_over, "", [](std::string* out, const PassedOver& passed) {
        absl::StrAppend(out, " s", passed.server, " at ", LogEndText(passed.chosen));
      }));
}

}  // namespace hotbed
