// The holders of a shard as text, for logs and error messages.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_RECORD_TEXT_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_RECORD_TEXT_H_

#include <string>
#include <vector>

#include "common/tables/shard_record.h"

namespace hotbed {

// "s2/5": server and incarnation.
std::string MemberText(const Member& member);
// "s2/5 s3/1", or "-".
std::string MembersText(const std::vector<Member>& members);
// "LSN 40 of epoch 3", or "nothing"
std::string LogEndText(const LogEnd& end);
// "primary s2/5, members s2/5 s3/1, learners -, epoch 7 active"; then the servers passed over.
std::string RecordText(const ShardRecord& record);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_RECORD_TEXT_H_
