// Reads the rows with which new shards begin from arrays of other programs (docs/arrays.md), each
// shard its own range. Thread-safe; calls block.
#ifndef HOTBED_SERVER_EXPORT_ARRAY_SOURCE_H_
#define HOTBED_SERVER_EXPORT_ARRAY_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "proto/checkpoint.pb.h"
#include "server/host/row_files.h"

namespace hotbed {

// The rows of `range` of `table`, whose checkpoint in `folder` has `arrays`. InvalidArgument: an
// array is not there, or it is not the one that was checked.
absl::StatusOr<std::unique_ptr<RowSource::Rows>> OpenArrayRows(const std::string& folder,
                                                               const v1::TableArrays& arrays,
                                                               const TableSpec& table,
                                                               const ShardRange& range);

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_ARRAY_SOURCE_H_
