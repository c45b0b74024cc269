#include "checkpoint/prune.h"

#include <set>

#include "checkpoint/checkpoint_folder.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The newest whole ones, and what they need. One that was folded counts only as its folded form.
absl::StatusOr<std::set<std::string>> NeededByNewest(const std::vector<CheckpointFolder>& found,
                                                     uint32_t keep, Place* place) {
  std::set<std::string> folded;
  for (const CheckpointFolder& folder : found) {
    if (folder.whole) folded.insert(folder.folded_from);
  }
  std::set<std::string> needed;
  for (auto folder = found.rbegin(); folder != found.rend() && keep > 0; ++folder) {
    if (!folder->whole || folded.contains(folder->name)) continue;
    --keep;
    needed.insert(folder->path);
    const auto chain = FoldersNeeded(folder->path, place);
    if (chain.ok()) needed.insert(chain->begin(), chain->end());
    const bool broken = absl::IsNotFound(chain.status()) || absl::IsDataLoss(chain.status());
    if (!chain.ok() && !broken) return chain.status();
  }
  return needed;
}

}  // namespace

absl::StatusOr<Pruned> PruneCheckpoints(const std::string& directory, const PruneOptions& options,
                                        Place* place) {
  HOTBED_ASSIGN_OR_RETURN(const auto found, ListCheckpoints(directory, place));
  HOTBED_ASSIGN_OR_RETURN(const std::set<std::string> needed,
                          NeededByNewest(found, options.keep, place));
  Pruned pruned;
  for (const CheckpointFolder& folder : found) {  // the oldest first
    const bool damaged = !folder.whole && folder.begun_unix_ms == 0;
    const bool orphan =
        !folder.whole && !damaged && folder.begun_unix_ms < options.orphans_before_unix_ms;
    const bool old = folder.whole && options.keep != 0 && !needed.contains(folder.path);
    if (folder.whole && !old) ++pruned.kept;
    if (!orphan && !old) continue;
    if (!options.dry_run) HOTBED_RETURN_IF_ERROR(DeleteCheckpoint(folder.path, place));
    pruned.deleted.push_back(folder.name);
    pruned.bytes += folder.bytes;
  }
  if (options.dry_run) return pruned;
  HOTBED_ASSIGN_OR_RETURN(pruned.unfinished,
                          place->EndUnfinished(directory, options.orphans_before_unix_ms));
  return pruned;
}

}  // namespace hotbed
