// Answers clients that ask for some rows by id (proto/changes.proto, ReadRows), such as copies of
// tables with column slices, which join the slices of a row.
#ifndef HOTBED_SERVER_EXPORT_ROW_READS_H_
#define HOTBED_SERVER_EXPORT_ROW_READS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/changes.pb.h"
#include "server/host/shard_host.h"
#include "server/shard/change_feed.h"

namespace hotbed {

// On this thread; it blocks until the rows are read.
//   InvalidArgument    names what is wrong: no shards, too many, one twice, ids of another shard,
//                      or more rows than an answer has
//   ResourceExhausted  answers in flight have all of their memory
absl::StatusOr<v1::ReadRowsReply> AnswerReadRows(const ShardHost& host, ChangeMemory* memory,
                                                 const v1::ReadRowsRequest& request);

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ROW_READS_H_
