// Reads the rows with which new shards begin from the files of a checkpoint, by range: the shards
// of the checkpoint may have had other edges. Thread-safe; calls block.
#ifndef HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_
#define HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "places/place_finder.h"
#include "proto/checkpoint.pb.h"
#include "server/host/row_files.h"

namespace hotbed {

class CheckpointSource : public RowSource {
 public:
  // Both outlive it.
  CheckpointSource(PlaceFinder* places, const Clock* clock) : places_(places), clock_(*clock) {}
  // The rows of TableSpec::restored_from. DataLoss: the checkpoint is damaged; InvalidArgument: it
  // does not fit the table; FailedPrecondition: its sessions cannot go on in this range.
  absl::StatusOr<std::unique_ptr<Rows>> Open(const TableSpec& table,
                                             const ShardRange& range) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Manifest = std::shared_ptr<const v1::CheckpointManifest>;
  struct Kept {
    Manifest manifest;
    int64_t read_ns = 0;
  };

  // Many shards begin with one checkpoint, so its manifest is kept for a moment. It vouches for the
  // files: if another checkpoint took its place, they are refused.
  absl::StatusOr<Manifest> ManifestOf(const std::string& folder, Place* place)
      ABSL_LOCKS_EXCLUDED(mu_);

  PlaceFinder* const places_;
  const Clock& clock_;
  absl::Mutex mu_;
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mu_);  // by folder
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_CHECKPOINT_SOURCE_H_
