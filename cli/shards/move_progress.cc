#include "cli/shards/move_progress.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/tables/table_text.h"
#include "config/units.h"

namespace hotbed {
namespace {

uint64_t BytesLeft(const v1::ShardMove& move, uint64_t share) {
  if (move.bytes_total() == 0) return share;
  return move.bytes_total() - std::min(move.bytes_total(), move.bytes_copied());
}

}  // namespace

MoveWork WorkOf(const v1::ListMovesReply& list) {
  MoveWork work;
  work.moves = list.moves_total();
  for (const v1::ShardMove& move : list.moves()) work.bytes += move.bytes_total();
  return work;
}

MoveProgress ProgressOf(const MoveWork& work, const v1::ListMovesReply& list,
                        const v1::ClusterMap& names) {
  MoveProgress progress;
  const uint64_t share = work.moves == 0 ? 0 : work.bytes / work.moves;
  uint64_t left = 0;
  for (const v1::ShardMove& move : list.moves()) {
    left += BytesLeft(move, share);
    progress.copying_done += move.bytes_copied();
    progress.copying_total += move.bytes_total();
    if (progress.waits_for.empty() && !move.waits_for().empty()) {
      progress.waits_for =
          absl::StrCat(ShardName(names, move.goal().shard()), ": ", move.waits_for());
    }
  }
  // The list is cut at a number of moves; the moves beyond it are waiting.
  const uint64_t listed = static_cast<uint64_t>(list.moves_size());
  left += (std::max(list.moves_total(), listed) - listed) * share;
  progress.moves_done = work.moves - std::min(work.moves, std::max(list.moves_total(), listed));
  progress.bytes_done = work.bytes - std::min(work.bytes, left);
  progress.bytes_per_s = list.bytes_per_s();
  progress.paused = list.paused();
  return progress;
}

std::string MoveNote(const MoveWork& work, const MoveProgress& progress) {
  std::string note;
  if (work.bytes > 0) {
    note = absl::StrCat(FormatBytes(progress.bytes_done), " of ", FormatBytes(work.bytes), ", ",
                        FormatBytes(progress.bytes_per_s), "/s, ");
  } else if (progress.copying_total > 0) {  // the total was unknown before
    note = absl::StrCat(FormatBytes(progress.copying_done), " of ",
                        FormatBytes(progress.copying_total), " in progress, ",
                        FormatBytes(progress.bytes_per_s), "/s, ");
  }
  absl::StrAppend(&note, progress.moves_done, " of ", work.moves,
                  work.moves == 1 ? " move" : " moves");
  if (progress.paused) {
    absl::StrAppend(&note, "; paused: 'hotbed shard resume'");
  } else if (!progress.waits_for.empty()) {
    absl::StrAppend(&note, "; ", progress.waits_for);
  }
  return note;
}

std::string MoveText(const v1::ClusterMap& names, const v1::ShardMove& move) {
  std::vector<std::string> now, wanted;
  if (move.record().primary().server() != 0) {
    now.push_back(ServerName(names, move.record().primary().server()));
  }
  for (const v1::Member& member : move.record().members()) {
    if (member.server() == move.record().primary().server()) continue;
    now.push_back(ServerName(names, member.server()));
  }
  for (const uint64_t server : move.goal().servers()) {
    wanted.push_back(ServerName(names, server));
  }
  if (!wanted.empty()) {
    return absl::StrCat(absl::StrJoin(now, " "), " -> ", absl::StrJoin(wanted, " "));
  }
  for (const v1::Member& learner :
       move.record().learners()) {  // a replica is added and none leaves
    wanted.push_back(ServerName(names, learner.server()));
  }
  return absl::StrCat(absl::StrJoin(now, " "), " + ", absl::StrJoin(wanted, " "));
}

}  // namespace hotbed
