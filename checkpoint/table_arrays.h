// Tables as arrays of other programs: NumPy's .npy and .safetensors (docs/arrays.md). The arrays of
// an import are checked here, and described by a manifest from which servers read them straight;
// those of an export are made here, and filled by servers, or joined from files of rows. The calls
// block. Memory: 8 bytes per row of one shard for a join, 16 bytes per row for the import of a
// hashed table.
#ifndef HOTBED_CHECKPOINT_TABLE_ARRAYS_H_
#define HOTBED_CHECKPOINT_TABLE_ARRAYS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/array_file.h"
#include "common/files/file_system.h"
#include "common/tables/table_spec.h"
#include "places/place.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

// False breaks the work off: Cancelled.
using OnArrayProgress = std::function<bool(uint64_t done, uint64_t rows)>;

// Paths. One .safetensors file may hold all of them, under the names "weight", "ids" and "state".
struct ArrayNames {
  std::string weights;
  std::string tensor;  // import: the name of the weights in a .safetensors file; empty: by itself
  std::string ids;     // of the rows of a hashed table; empty: in `weights`, if that can be
  std::string state;   // the optimizer's; empty: left out
};

// InvalidArgument: a hashed table needs ids, a bounded one has none; or the table has no state.
absl::Status CheckNames(const TableSpec& spec, ArrayNames* names);

// --- import

struct FoundArrays {
  ArrayNames names;
  ArrayInfo weights;
  ArrayInfo ids;
  ArrayInfo state;
  // Where each row of a hashed table goes, by position: position, row.
  std::vector<std::pair<uint64_t, uint64_t>> places;
};

// The weights that the names mean. NotFound names the tensors that there are.
absl::StatusOr<ArrayInfo> FindWeights(const ArrayNames& names);

// Checks the arrays of an import before anything is written: shapes, types, ids that occur once,
// NaN (unless the table allows them). Fills in the dim, and the rows of a bounded table, if `spec`
// has none. InvalidArgument names the file, its fault and the allowed values.
absl::StatusOr<FoundArrays> CheckArrays(const ArrayNames& names, TableSpec* spec,
                                        const OnArrayProgress& progress);

// Writes a checkpoint of one table into `folder`, which has a file `saving`: its rows lie in the
// arrays.
absl::Status DescribeArrays(const FoundArrays& arrays, const TableSpec& spec,
                            const std::string& folder, FileSystem* files, Place* place);

// --- export

// Makes the files of an export in `folder`, and says where the arrays are. `names` are those of the
// files there.
absl::Status MakeExportFiles(const TableSpec& spec, const std::string& folder,
                             const ArrayNames& names, uint64_t rows, v1::TableArrays* arrays,
                             ArrayInfo* ids);

// Joins the files of rows of a hashed table, in `folder`, into new files there: the rows that
// exist, in order of position. Returns their number.
absl::StatusOr<uint64_t> JoinRows(const std::string& folder, const v1::CheckpointTable& table,
                                  const ArrayNames& names, Place* place,
                                  const OnArrayProgress& progress);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_TABLE_ARRAYS_H_
