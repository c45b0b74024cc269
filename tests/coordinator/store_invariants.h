// The invariants of the coordinator's store at every revision: tables and their names agree, the
// shards of a table tile it, and no change of a shard record breaks a rule (BrokenRule).
#ifndef HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_
#define HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "planner/coordinator/membership/shard_decision.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/record_text.h"
#include "proto/convert.h"
#include "proto/types.pb.h"
#include "tests/coordinator/map_meta_store.h"

namespace hotbed {

// Checks the invariants after each transaction, whichever coordinator wrote it.
class StoreInvariants {
 public:
  void Check(const MapMetaStore& store) {
    if (store.revision == checked_) return;
    checked_ = store.revision;
    std::map<TableId, v1::TableSpec> tables;
    std::map<uint64_t, v1::ShardRecord> shards;
    std::map<std::string, std::string> names;
    for (const auto& [key, kv] : store.keys) {
      absl::string_view rest = key;
      if (absl::ConsumePrefix(&rest, keys::kNames)) names[std::string(rest)] = kv.value;
      if (absl::StartsWith(key, keys::kTables)) {
        v1::TableSpec spec;
        ASSERT_TRUE(spec.ParseFromString(kv.value));
        tables[spec.id()] = spec;
      }
      if (absl::StartsWith(key, keys::kShards)) {
        v1::ShardRecord record;
        ASSERT_TRUE(record.ParseFromString(kv.value));
        shards[record.shard()] = record;
      }
    }
    ASSERT_EQ(names.size(), tables.size());
    for (const auto& [id, spec] : tables) {
      ASSERT_EQ(names[spec.name()], absl::StrCat(id)) << "one table per name";
      ASSERT_EQ(gone_.count(id), 0u) << "table id " << id << " was used again";
      CheckTiles(spec, shards);
    }
    for (const TableId id : visible_) {
      if (tables.count(id) == 0) gone_.insert(id);
    }
    visible_.clear();
    for (const auto& [id, spec] : tables) visible_.insert(id);
    for (const auto& [id, record] : shards) CheckStep(record);
  }

 private:
  static void CheckTiles(const v1::TableSpec& spec,
                         const std::map<uint64_t, v1::ShardRecord>& shards) {
    uint64_t next = 0;
    for (uint32_t i = 0;; ++i) {
      auto it = shards.find(ShardId{spec.id(), i}.packed());
      if (it == shards.end()) break;
      ASSERT_EQ(it->second.range_first(), next);
      ASSERT_EQ(it->second.column_limit(), spec.dim());
      next = it->second.range_limit();
    }
    ASSERT_EQ(next, spec.hashed() ? 65536 : spec.rows()) << "table " << spec.name();
  }

  // From one record of a shard to the next.
  void CheckStep(const v1::ShardRecord& message) {
    const absl::StatusOr<ShardRecord> now = FromProto(message);
    ASSERT_TRUE(now.ok()) << now.status();
    ShardRecord& before = last_[message.shard()];
    ASSERT_EQ(BrokenRule(before, *now), "") << RecordText(before) << " became " << RecordText(*now);
    before = *now;
  }

  uint64_t checked_ = 0;
  std::map<uint64_t, ShardRecord> last_;
  std::set<TableId> visible_;
  std::set<TableId> gone_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_
