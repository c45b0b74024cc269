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

std::string RecordText(const ShardRecord& record) {
  return absl::StrCat("primary ", MemberText(record.primary), ", members ",
                      MembersText(record.members), ", learners ", MembersText(record.learners),
                      ", epoch ", record.epoch, record.active ? " active" : "");
}

}  // namespace hotbed
