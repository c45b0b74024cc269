#include "cli/shards/shard_selection.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/tables/find_table.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status BadWord(const std::string& word) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", word, "' is no shards: write TABLE/INDEX, TABLE/FIRST-LAST, TABLE/all or all"));
}

struct IndexRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

absl::StatusOr<IndexRange> ParseRange(const std::string& word, const std::string& text) {
  IndexRange range;
  const size_t dash = text.find('-');
  if (!absl::SimpleAtoi(text.substr(0, dash), &range.first)) return BadWord(word);
  range.last = range.first;
  if (dash == std::string::npos) return range;
  if (!absl::SimpleAtoi(text.substr(dash + 1), &range.last)) return BadWord(word);
  if (range.last < range.first) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", word, "' runs backwards: ", range.first, " is above ", range.last));
  }
  return range;
}

using Selection = std::map<uint64_t, SelectedShard>;

void Add(const v1::ShardRecord& record, bool by_name, Selection* selection) {
  SelectedShard& selected = (*selection)[record.shard()];
  selected.record = record;
  selected.by_name |= by_name;
}

absl::Status AddWord(const v1::ClusterMap& map, const std::string& word, Selection* selection) {
  if (word == "all") {
    for (const v1::ShardRecord& record : map.shards()) Add(record, false, selection);
    return absl::OkStatus();
  }
  const size_t slash = word.rfind('/');
  if (slash == std::string::npos) return BadWord(word);
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, word.substr(0, slash)));
  const std::vector<v1::ShardRecord> shards = ShardsOf(map, spec.id);
  const std::string which = word.substr(slash + 1);
  if (which == "all") {
    for (const v1::ShardRecord& record : shards) Add(record, false, selection);
    return absl::OkStatus();
  }
  HOTBED_ASSIGN_OR_RETURN(const IndexRange range, ParseRange(word, which));
  uint64_t found = 0;
  for (const v1::ShardRecord& record : shards) {
    const uint32_t index = ShardId::FromPacked(record.shard()).index;
    if (index < range.first || index > range.last) continue;
    Add(record, range.first == range.last, selection);
    ++found;
  }
  if (found == uint64_t{range.last} - range.first + 1) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("'", word, "': table '", spec.name, "' has the shards 0-",
                                          shards.empty() ? 0 : shards.size() - 1));
}

}  // namespace

absl::StatusOr<std::vector<SelectedShard>> SelectShards(const v1::ClusterMap& map,
                                                        const std::vector<std::string>& words) {
  Selection selection;
  for (const std::string& word : words) {
    HOTBED_RETURN_IF_ERROR(AddWord(map, word, &selection));
  }
  std::vector<SelectedShard> out;
  for (auto& [shard, selected] : selection) out.push_back(std::move(selected));
  return out;
}

bool HoldsReplica(const v1::ShardRecord& record, uint64_t server) {
  return std::any_of(record.members().begin(), record.members().end(),
                     [server](const v1::Member& member) { return member.server() == server; }) ||
         record.primary().server() == server;
}

WantedMoves MovesTo(const std::vector<SelectedShard>& shards, uint64_t from, uint64_t to) {
  WantedMoves wanted;
  for (const SelectedShard& shard : shards) {
    // A backup may become the primary; otherwise a server cannot hold a second replica.
    const uint64_t primary = shard.record.primary().server();
    const bool there = from == 0 || from == primary
                           ? primary == to
                           : HoldsReplica(shard.record, to) || !HoldsReplica(shard.record, from);
    if (there && !shard.by_name) {
      ++wanted.passed_over;
      continue;
    }
    v1::MoveShardsRequest::Move move;
    move.set_shard(shard.record.shard());
    move.set_from(from);
    move.set_to(to);
    wanted.moves.push_back(std::move(move));
  }
  return wanted;
}

}  // namespace hotbed
