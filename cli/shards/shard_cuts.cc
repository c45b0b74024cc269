#include "cli/shards/shard_cuts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
// So many are asked for at once: a server makes them one after another, and the coordinator gives
// up those that were not made a minute after they were asked for.
constexpr size_t kAtOnce = 64;

// Whether the shards on both sides of the cut are served; they may have been cut again by now. Of a
// merge: whether one shard has both sides, and is served.
bool IsDone(const v1::ClusterMap& map, const v1::ShardCut& cut) {
  const TableId table = ShardId::FromPacked(cut.shard()).table;
  if (cut.with() != 0) {
    return std::any_of(map.shards().begin(), map.shards().end(), [&](const auto& record) {
      return ShardId::FromPacked(record.shard()).table == table && record.active() &&
             record.range_first() < cut.at() && record.range_limit() > cut.at();
    });
  }
  bool lower = false;
  bool upper = false;
  for (const v1::ShardRecord& record : map.shards()) {
    if (ShardId::FromPacked(record.shard()).table != table || !record.active()) continue;
    lower |= record.range_limit() == cut.at();
    upper |= record.range_first() == cut.at();
  }
  return lower && upper;
}

}  // namespace

absl::Status AwaitCuts(const std::vector<v1::CutShardReply>& cuts, absl::Duration patience,
                       CoordinatorStub* coordinator) {
  size_t done = 0;
  for (absl::Time end = absl::Now() + patience; done < cuts.size();) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator->GetClusterMap());
    const size_t before = done;
    while (done < cuts.size() && IsDone(map, cuts[done].cut())) ++done;
    if (done > before) end = absl::Now() + patience;
    if (done == cuts.size()) break;
    if (absl::Now() > end) {
      return absl::DeadlineExceededError(absl::StrCat(
          ShardId::FromPacked(cuts[done].cut().shard()).ToString(),
          cuts[done].cut().with() == 0 ? " is not cut after " : " is not merged after ",
          absl::FormatDuration(patience),
          "; it goes on being tried for a minute: 'hotbed shard list' and 'hotbed events' tell"));
    }
    absl::SleepFor(kLookEvery);
  }
  return absl::OkStatus();
}

absl::Status CarryOutCuts(const std::vector<WantedCut>& wanted, const std::string& reason,
                          absl::Duration patience, CoordinatorStub* coordinator) {
  bool done = false;
  for (size_t round = 0; !std::exchange(done, true); ++round) {  // a shard has one cut at a time
    std::vector<v1::CutShardReply> cuts;
    for (const WantedCut& cut : wanted) {
      if (round >= cut.at.size()) continue;
      done = false;
      v1::CutShardRequest request;
      request.set_shard(cut.shard.packed());
      request.set_at(cut.at[round]);
      request.set_reason(reason);
      HOTBED_ASSIGN_OR_RETURN(v1::CutShardReply reply, coordinator->CutShard(request));
      cuts.push_back(std::move(reply));
      if (cuts.size() < kAtOnce) continue;
      HOTBED_RETURN_IF_ERROR(AwaitCuts(cuts, patience, coordinator));
      cuts.clear();
    }
    if (!cuts.empty()) HOTBED_RETURN_IF_ERROR(AwaitCuts(cuts, patience, coordinator));
  }
  return absl::OkStatus();
}

absl::Status CarryOutMerges(std::vector<WantedMerge> wanted, const std::string& reason,
                            absl::Duration patience, CoordinatorStub* coordinator) {
  while (!wanted.empty()) {
    std::set<ShardId> busy;
    std::vector<v1::CutShardReply> merges;
    std::vector<WantedMerge> later;
    for (const WantedMerge& merge : wanted) {
      const bool waits =
          busy.contains(merge.lower) || busy.contains(merge.upper) || merges.size() == kAtOnce;
      busy.insert({merge.lower, merge.upper});
      if (waits) {
        later.push_back(merge);
        continue;
      }
      v1::CutShardRequest request;
      request.set_shard(merge.lower.packed());
      request.set_merge_with(merge.upper.packed());
      request.set_reason(reason);
      HOTBED_ASSIGN_OR_RETURN(v1::CutShardReply reply, coordinator->CutShard(request));
      merges.push_back(std::move(reply));
    }
    HOTBED_RETURN_IF_ERROR(AwaitCuts(merges, patience, coordinator));
    wanted.swap(later);
  }
  return absl::OkStatus();
}

}  // namespace hotbed
