#include "client/map/reply_records.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/convert.h"

namespace hotbed {

size_t ApplyRecordsOf(const v1::ReplyHeader& header, uint32_t first, uint32_t count,
                      ClusterMapHolder* map) {
  std::vector<ShardRecord> records;
  for (uint32_t i = 0; i < count; ++i) {
    const v1::SegmentReply& segment = header.segments(static_cast<int>(first + i));
    if (!segment.has_record()) continue;
    absl::StatusOr<ShardRecord> record = FromProto(segment.record());
    if (record.ok()) records.push_back(*std::move(record));
  }
  return records.empty() ? 0 : map->ApplyRecords(records);
}

}  // namespace hotbed
