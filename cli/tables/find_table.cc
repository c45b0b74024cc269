#include "cli/tables/find_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tables/composition.h"
#include "config/config.h"
#include "proto/convert.h"
#include "row_math/position.h"

namespace hotbed {

std::vector<TableSpec> FindParts(const v1::ClusterMap& map, const std::string& name) {
  std::vector<TableSpec> parts;
  for (const v1::TableSpec& table : map.tables()) {
    if (table.composition().table() != name || name.empty()) continue;
    absl::StatusOr<TableSpec> spec = FromProto(table);
    if (spec.ok()) parts.push_back(*std::move(spec));
  }
  return PartsByName(parts, name);
}

absl::StatusOr<TableSpec> FindTable(const v1::ClusterMap& map, const std::string& name) {
  std::vector<std::string> known;
  for (const v1::TableSpec& table : map.tables()) {
    if (table.name() == name) return FromProto(table);
    known.push_back(table.name());
  }
  if (const std::vector<TableSpec> parts = FindParts(map, name); !parts.empty()) {
    std::vector<std::string> names;
    for (const TableSpec& part : parts) names.push_back(part.name);
    return absl::NotFoundError(
        absl::StrCat("table '", name,
                     "' is composed; this command takes its parts: ", absl::StrJoin(names, ", ")));
  }
  const std::string nearest = NearestWord(name, known);
  return absl::NotFoundError(absl::StrCat(
      "there is no table '", name, "'",
      nearest.empty() ? absl::StrCat(" (", known.size(), " tables: see 'hotbed table list')")
                      : absl::StrCat("; did you mean '", nearest, "'?")));
}

std::vector<v1::ShardRecord> ShardsOf(const v1::ClusterMap& map, TableId table) {
  std::vector<v1::ShardRecord> out;
  for (const v1::ShardRecord& shard : map.shards()) {
    if (ShardId::FromPacked(shard.shard()).table == table) out.push_back(shard);
  }
  std::sort(out.begin(), out.end(), [](const v1::ShardRecord& a, const v1::ShardRecord& b) {
    return a.shard() < b.shard();
  });
  return out;
}

std::vector<const v1::ShardRecord*> ShardsOfId(const TableSpec& spec,
                                               const std::vector<v1::ShardRecord>& shards,
                                               uint64_t id) {
  const uint64_t unit = spec.hashed ? BucketOf(Mix64(id)) : id;
  std::vector<const v1::ShardRecord*> found;
  for (const v1::ShardRecord& shard : shards) {
    if (unit >= shard.range_first() && unit < shard.range_limit()) found.push_back(&shard);
  }
  return found;
}

}  // namespace hotbed
