// Shard records that travel in the answers of data servers.
#ifndef HOTBED_CLIENT_MAP_REPLY_RECORDS_H_
#define HOTBED_CLIENT_MAP_REPLY_RECORDS_H_

#include <cstdint>

#include "client/map/cluster_map.h"
#include "proto/data.pb.h"

namespace hotbed {

// Applies the records in the segments [first, first + count) of an answer, which come with
// refusals, all at once: after a fail-over every segment may carry one. Malformed records are left
// out. Returns how many records were news. Thread-safe.
size_t ApplyRecordsOf(const v1::ReplyHeader& header, uint32_t first, uint32_t count,
                      ClusterMapHolder* map);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_REPLY_RECORDS_H_
