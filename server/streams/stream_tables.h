// Which tables the caller of a stream or call may use; decided once per table. Not thread-safe: one
// message of a stream is parsed at a time.
#ifndef HOTBED_SERVER_STREAMS_STREAM_TABLES_H_
#define HOTBED_SERVER_STREAMS_STREAM_TABLES_H_

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "security/table_access.h"
#include "server/host/shard_host.h"

namespace hotbed {

class StreamTables {
 public:
  StreamTables() = default;  // all tables
  explicit StreamTables(std::unique_ptr<TableAccess> access) : access_(std::move(access)) {}

  // Null: all tables may be used.
  StreamTables* limited() { return access_ == nullptr ? nullptr : this; }
  // Whether the table of `shard` may be used.
  const absl::Status& Check(TableId table, const Shard& shard) {
    const auto found = decided_.find(table);
    if (found != decided_.end()) return found->second;
    return decided_.emplace(table, access_->Check(ShardHost::TableNameOf(shard))).first->second;
  }

 private:
  std::unique_ptr<TableAccess> access_;
  absl::flat_hash_map<TableId, absl::Status> decided_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_STREAM_TABLES_H_
