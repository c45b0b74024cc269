// The calls of proto/checkpoint.proto, proto/changes.proto and proto/top_k.proto on the data port.
// Thread-safe; they do not block.
#ifndef HOTBED_SERVER_EXPORT_CHECKPOINT_CALLS_H_
#define HOTBED_SERVER_EXPORT_CHECKPOINT_CALLS_H_

#include <map>
#include <string>

#include "common/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/tool_calls.h"
#include "server/export/change_reads.h"
#include "server/export/own_disk.h"
#include "server/export/row_lists.h"
#include "server/export/save_jobs.h"
#include "server/export/top_k_calls.h"
#include "server/host/shard_host.h"

namespace hotbed {

// How far the shards of a table have come that begin with saved rows here.
v1::WatchRestoreReply RestoreState(const ShardHost& host, TableId table);

// By method. Both outlive the calls.
std::map<std::string, ToolCalls::Call> CheckpointCalls(SaveJobs* saves, const ShardHost* host);
std::map<std::string, ToolCalls::SlowCall> RowCalls(const ShardHost* host, RowLists* lists,
                                                    ChangeReads* changes, TopKCalls* top_k);
std::map<std::string, ToolCalls::SlowCall> FileCalls(OwnDisk* disk);

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_CHECKPOINT_CALLS_H_
