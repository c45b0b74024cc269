// Reads the rows of one table out of the files of a version, which is a checkpoint (checkpoint/).
// Blocks; keeps nothing.
#ifndef HOTBED_SERVING_VERSION_FILES_H_
#define HOTBED_SERVING_VERSION_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "places/place.h"
#include "proto/served_part.h"
#include "proto/types.pb.h"

namespace hotbed {

struct VersionRows {
  absl::Span<const uint64_t> ids;
  absl::Span<const float> weights;  // dim per id
  uint64_t rows_in_all = 0;         // of all files of the table
};

// Calls `take` with all rows of the part, each once, a block at a time, until it returns an error,
// which is returned. With column slices, a row comes if every slice has it, and comes whole.
//
//   NotFound            there is no such checkpoint (any more)
//   DataLoss            it is damaged
//   FailedPrecondition  it is one of another table, of changes alone, or of arrays
absl::Status ReadVersionRows(const std::string& folder, const v1::TableSpec& spec,
                             const ServedPart& part, Place* place,
                             absl::FunctionRef<absl::Status(const VersionRows&)> take);

}  // namespace hotbed

#endif  // HOTBED_SERVING_VERSION_FILES_H_
