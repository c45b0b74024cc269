// Answers questions about the life of a shard's rows (proto/changes.proto, RowLife): the touches of
// some of them, and how many the policies of the table would take now.
#ifndef HOTBED_SERVER_EXPORT_ROW_LIFE_H_
#define HOTBED_SERVER_EXPORT_ROW_LIFE_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/changes.pb.h"
#include "server/host/shard_host.h"

namespace hotbed {

constexpr size_t kRowLifeIdsMax = 4096;

// On this thread; it blocks. `go_on` is asked often; its error ends the call.
//   InvalidArgument  names what is wrong: the table keeps no touches, too many ids, ids elsewhere
//   Aborted          the shard has left this server meanwhile: look at the map again
absl::StatusOr<v1::RowLifeReply> AnswerRowLife(const ShardHost& host,
                                               const v1::RowLifeRequest& request,
                                               absl::FunctionRef<absl::Status()> go_on);

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ROW_LIFE_H_
