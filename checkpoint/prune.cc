#include "checkpoint/prune.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_folder.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The newest whole ones, and what they and saves under way need. One that was folded counts only as
// its folded form.
absl::StatusOr<std::set<std::string>> NeededByNewest(const std::vector<CheckpointFolder>& found,
                                                     const PruneOptions& options, Place* place) {
  std::set<std::string> folded;
  for (const CheckpointFolder& folder : found) {
    if (folder.whole) folded.insert(folder.folded_from);
  }
  std::vector<std::string> wanted;
  uint32_t kept = 0;
  for (auto folder = found.rbegin(); folder != found.rend(); ++folder) {
    if (!folder->whole && !folder->parent.empty() &&
        folder->begun_unix_ms >= options.orphans_before_unix_ms) {
      wanted.push_back(folder->path.substr(0, folder->path.rfind('/') + 1) + folder->parent);
    }
    if (!folder->whole || folded.contains(folder->name) || kept == options.keep) continue;
    ++kept;
    wanted.push_back(folder->path);
  }
  std::set<std::string> needed(wanted.begin(), wanted.end());
  for (const std::string& path : wanted) {
    const auto chain = FoldersNeeded(path, place);
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
                          NeededByNewest(found, options, place));
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

absl::StatusOr<CheckpointFolder> FindDeletable(const std::string& folder, Place* place) {
  const size_t slash = folder.rfind('/');
  const std::string name = folder.substr(slash == folder.npos ? 0 : slash + 1);
  absl::StatusOr<std::vector<CheckpointFolder>> found = std::vector<CheckpointFolder>();
  if (slash != folder.npos) found = ListCheckpoints(folder.substr(0, slash), place);
  HOTBED_RETURN_IF_ERROR(found.status());
  const CheckpointFolder* wanted = nullptr;
  for (const CheckpointFolder& one : *found) {
    if (one.name == name) wanted = &one;
    if (one.parent != name) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(one.path, " needs ", name, "; delete that one first"));
  }
  if (wanted == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(folder, " is no checkpoint; 'hotbed checkpoint list' shows those of a place"));
  }
  // Without a time it is damaged; with that of kDeletingMark, a deletion of it broke off.
  if (wanted->whole || wanted->begun_unix_ms <= 1) return *wanted;
  return absl::FailedPreconditionError(
      absl::StrCat(folder, ": ", wanted->trouble,
                   "; 'hotbed checkpoint prune' deletes it once it is taken for broken off "
                   "(--orphan-minutes)"));
}

}  // namespace hotbed
