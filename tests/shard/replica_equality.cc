// Whether the replicas of a ReplicaCluster's shards are equal.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/protocol/session_table.h"
#include "server/tiers/api/host.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_tier.h"
#include "tests/shard/replica_fixture.h"

namespace hotbed {
namespace {

// For a message: how the rows of two replicas differ.
std::string Difference(const std::map<uint64_t, std::string>& one,
                       const std::map<uint64_t, std::string>& other) {
  std::string text = absl::StrCat(one.size(), " and ", other.size(), " rows");
  size_t different = 0;
  for (const auto& [position, row] : one) {
    const auto it = other.find(position);
    if (it == other.end()) {
      absl::StrAppend(&text, ", row ", position, " in the first alone");
    } else if (it->second != row) {
      const auto a = std::mismatch(row.begin(), row.end(), it->second.begin()).first;
      absl::StrAppend(&text, ", row ", position, " differs from byte ",
                      std::distance(row.begin(), a), " on");
    } else {
      continue;
    }
    if (++different == 5) break;
  }
  return text;
}

}  // namespace

// A backup applies what it holds once it hears that it is committed: with the next entries, or
// where that word was lost with a connection, by a later tick.
void ReplicaCluster::AwaitBackups() {
  const auto applied = [this](ServerId server, ShardId shard) -> std::optional<Lsn> {
    if (!up(server)) return std::nullopt;
    for (const ShardStatus& s : host(server)->Status().shards) {
      if (s.shard == shard) return s.applied_lsn;
    }
    return std::nullopt;
  };
  const auto alike = [&](ShardId shard) {
    const ShardRecord found = record(shard);
    const std::optional<Lsn> first = applied(found.primary.server, shard);
    return !first || std::all_of(found.members.begin(), found.members.end(), [&](const Member& m) {
      return applied(m.server, shard).value_or(*first) == *first;
    });
  };
  const std::vector<ShardId> all = shards();
  SettleUntil([&] { return std::all_of(all.begin(), all.end(), alike); },
              "backups have applied what their primaries have");
}

void ReplicaCluster::ExpectReplicasEqual() {
  AwaitBackups();
  while (!servers_.empty()) ASSERT_TRUE(Stop(servers_.begin()->first).ok());
  std::map<ServerId, std::unique_ptr<TierHost>> tiers;
  for (const ShardId shard : shards()) {
    const ShardRecord found = record(shard);
    const TableSpec& table = tables_.at(shard.table);
    const SpillShard format(table, found.range, shard);
    std::map<uint64_t, std::string> first;
    std::string first_filter;
    for (size_t k = 0; k < found.members.size(); ++k) {
      auto& tier = tiers[found.members[k].server];
      if (tier == nullptr) {
        TierOptions options;
        options.spill_dir = data_dir(found.members[k].server) + "/spill";
        options.hot_bytes = 1 << 20;
        auto opened = TierHost::Open(options);
        ASSERT_TRUE(opened.ok()) << opened.status();
        tier = *std::move(opened);
      }
      auto reader = tier->ReadShard(SpillShard(table, found.range, shard), /*above=*/0);
      ASSERT_TRUE(reader.ok());
      std::map<uint64_t, std::string> rows;
      for (;;) {
        auto bytes = (*reader)->Next(1 << 20);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        if (bytes->empty()) break;
        auto block = RowBlock::Parse(*bytes, format.record_bytes());
        ASSERT_TRUE(block.ok()) << block.status();
        for (uint32_t row = 0; row < block->rows(); ++row) {
          rows[block->position(row)] =
              std::string(block->record(row).substr(kSpillHeaderBytes, format.payload_bytes));
        }
      }
      const auto bytes = tier->ReadMeta(format);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const auto meta = ShardMeta::Parse(*bytes);
      ASSERT_TRUE(meta.ok()) << meta.status();
      if (k == 0) first_filter = meta->touch_filter;
      EXPECT_TRUE(meta->touch_filter == first_filter)
          << shard.ToString() << ": counts of touches on server " << found.members[k].server;
      if (k == 0) {
        EXPECT_FALSE(rows.empty()) << shard.ToString();
        first = std::move(rows);
      } else {
        EXPECT_TRUE(rows == first)
            << shard.ToString() << ": server " << found.members[k].server << " differs from server "
            << found.members[0].server << ": " << Difference(first, rows);
      }
    }
  }
}

}  // namespace hotbed
