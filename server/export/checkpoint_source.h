// Reads the rows with which new shards begin from the files of a checkpoint, by range: the shards
// of the checkpoint may have had other edges. Thread-safe; calls block.
#ifndef HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_
#define HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "places/place_finder.h"
#include "server/host/row_files.h"

namespace hotbed {

class CheckpointSource : public RowSource {
 public:
  explicit CheckpointSource(PlaceFinder* places) : places_(places) {}
  // The rows of TableSpec::restored_from. DataLoss: the checkpoint is damaged; InvalidArgument: it
  // does not fit the table; FailedPrecondition: its sessions cannot go on in this range.
  absl::StatusOr<std::unique_ptr<Rows>> Open(const TableSpec& table,
                                             const ShardRange& range) override;

 private:
  PlaceFinder* const places_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_
