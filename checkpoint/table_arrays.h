// Tables as NumPy arrays: from the files of a checkpoint, and into a checkpoint of their own that a
// table can begin with (docs/checkpoints.md). The calls block; memory is that of one shard's ids,
// and for the import of a hashed table 16 bytes per row.
#ifndef HOTBED_CHECKPOINT_TABLE_ARRAYS_H_
#define HOTBED_CHECKPOINT_TABLE_ARRAYS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/file_system.h"
#include "common/tables/table_spec.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

// False breaks the work off: Cancelled.
using OnArrayProgress = std::function<bool(uint64_t done, uint64_t rows)>;

// InvalidArgument: the ids of a hashed table need a file of their own, a bounded table has none.
absl::Status CheckIdsFile(const TableSpec& spec, const std::string& ids_path);

// Writes the weights of a table. A bounded table gives all rows, by id; rows that were never pushed
// have their first values. A hashed table gives the rows that the checkpoint has, in order of
// position, and their ids into `ids_path`. bf16 weights become fp32. Returns the number of rows.
// After an error there are no arrays.
absl::StatusOr<uint64_t> ExportTable(const std::string& folder, const v1::CheckpointTable& table,
                                     const std::string& rows_path, const std::string& ids_path,
                                     FileSystem* files, const OnArrayProgress& progress);

// Checks the arrays of an import before anything is written: shapes, types, ids that occur once,
// NaN (unless the table allows them). Fills in the dim, and the rows of a bounded table, if `spec`
// has none. InvalidArgument names the file, its fault and the allowed values.
absl::Status CheckArrays(const std::string& rows_path, const std::string& ids_path,
                         TableSpec* spec);

// Writes a checkpoint named `name` of one table from arrays that were checked: weights from
// `rows_path`, and the optimizer state that new rows have. Returns its folder.
absl::StatusOr<std::string> ImportTable(const std::string& rows_path, const std::string& ids_path,
                                        const TableSpec& spec, const std::string& directory,
                                        const std::string& name, FileSystem* files,
                                        const OnArrayProgress& progress);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_TABLE_ARRAYS_H_
