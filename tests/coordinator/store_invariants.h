// What must hold of the coordinator's store at every revision (reliability page, I5 and I6).
#ifndef HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_
#define HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/message_differencer.h"
#include "planner/coordinator/state/keys.h"
#include "proto/types.pb.h"
#include "tests/coordinator/map_meta_store.h"

namespace hotbed {

// What must hold of the store whoever wrote it, from one transaction to the next.
class StoreInvariants {
 public:
  using MessageDifferencer = google::protobuf::util::MessageDifferencer;

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
      ASSERT_EQ(names[spec.name()], absl::StrCat(id)) << "one table a name";
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

  // From one record of a shard to the next: epochs never fall, an epoch has one set of members, and
  // a new one takes its members from those who may hold everything.
  void CheckStep(const v1::ShardRecord& now) {
    v1::ShardRecord& before = last_[now.shard()];
    ASSERT_GE(now.epoch(), before.epoch());
    ASSERT_LE(now.epoch(), before.epoch() + 1);
    ASSERT_GT(now.members_size(), 0);
    ASSERT_TRUE(Has(now.members(), now.primary())) << "the primary is a member";
    for (const v1::Member& learner : now.learners()) {
      ASSERT_EQ(CountServer(now.members(), learner) + CountServer(now.learners(), learner), 1)
          << "a server stands once: " << now.ShortDebugString();
    }
    if (now.epoch() == before.epoch()) {
      ASSERT_TRUE(MessageDifferencer::Equals(now.primary(), before.primary()));
      ASSERT_TRUE(Same(now.members(), before.members()));
      ASSERT_GE(now.active(), before.active()) << "never taken back within an epoch";
    } else if (before.epoch() > 0) {
      ASSERT_FALSE(now.active());
      ASSERT_TRUE(Same(now.base(), before.active() ? before.members() : before.base()))
          << "base is who was last active";
      CheckMembers(before, now);
    }
    before = now;
  }

  // Each new member was one, or a learner, or of the last active epoch where nothing was
  // acknowledged since; or all are gone, and it is a later process of a server that was one.
  static void CheckMembers(const v1::ShardRecord& before, const v1::ShardRecord& now) {
    for (const v1::Member& m : now.members()) {
      const bool held = Has(before.members(), m) || Has(before.learners(), m) ||
                        (!before.active() && Has(before.base(), m));
      const bool back = now.members_size() == 1 &&
                        CountServer(before.members(), m) + CountServer(before.base(), m) > 0;
      ASSERT_TRUE(held || back) << before.ShortDebugString() << " -> " << now.ShortDebugString();
    }
  }

  using Members = google::protobuf::RepeatedPtrField<v1::Member>;
  static bool Has(const Members& members, const v1::Member& one) {
    return std::any_of(members.begin(), members.end(), [&](const v1::Member& m) {
      return m.server() == one.server() && m.incarnation() == one.incarnation();
    });
  }
  static int CountServer(const Members& members, const v1::Member& one) {
    return static_cast<int>(std::count_if(
        members.begin(), members.end(), [&](const auto& m) { return m.server() == one.server(); }));
  }
  static bool Same(const Members& a, const Members& b) {
    return a.size() == b.size() &&
           std::all_of(a.begin(), a.end(), [&](const v1::Member& m) { return Has(b, m); });
  }

  uint64_t checked_ = 0;
  std::map<uint64_t, v1::ShardRecord> last_;
  std::set<TableId> visible_;
  std::set<TableId> gone_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_STORE_INVARIANTS_H_
