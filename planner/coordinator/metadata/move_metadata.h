// Moves the metadata of a cluster from one store to another while no coordinator runs.
//
// An export marks the store first, so that no coordinator begins with it any more, then reads it;
// it may be repeated. An import writes into a store that is empty, or was exported from, or holds
// an import that was cut short; until its end no coordinator begins with that store. Numbers go on:
// the revisions of the new store count from above those of the old one.
//
// Every change is fenced by compares, so that a coordinator that begins meanwhile ends the move, or
// is refused itself.
#ifndef HOTBED_PLANNER_COORDINATOR_METADATA_MOVE_METADATA_H_
#define HOTBED_PLANNER_COORDINATOR_METADATA_MOVE_METADATA_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

struct ExportedMetadata {
  std::string cluster_id;
  std::vector<KeyValue> records;
  size_t count(absl::string_view prefix) const;  // records with keys that begin so
};

std::string SerializeExport(const ExportedMetadata& metadata);
// DataLoss or FailedPrecondition says what is wrong, as ParseRecords does.
absl::StatusOr<ExportedMetadata> ParseExport(absl::string_view bytes);

// `mark` false: reads only, as for a dry run; what is read may change then.
//   NotFound            the store holds no metadata
//   FailedPrecondition  a coordinator uses the store; or an import into it has not ended; or its
//                       metadata are of another format
//   Aborted             a coordinator began meanwhile
absl::StatusOr<ExportedMetadata> ExportMetadata(bool mark, MetaStore* store);

// OK: ImportMetadata would begin. FailedPrecondition: a coordinator uses the store, or it holds
// metadata that are in use, or those of another cluster, or, unless `replaces_later`, changes that
// were made after the export, or an import that has not ended of a later export or another cluster.
absl::Status MayImport(const ExportedMetadata& metadata, bool replaces_later, MetaStore* store);
// Aborted: somebody else wrote meanwhile.
absl::Status ImportMetadata(const ExportedMetadata& metadata, bool replaces_later,
                            MetaStore* store);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_METADATA_MOVE_METADATA_H_
