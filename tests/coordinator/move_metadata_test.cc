// Metadata go from store to store, and a cluster goes on with them.
#include "planner/coordinator/metadata/move_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <string>

#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/metadata_backup.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {
namespace move_metadata_test {

using ::testing::HasSubstr;

class MoveMetadataTest : public ::testing::Test {
 protected:
  MoveMetadataTest() : rig_(&old_, "") {
    rig_.Pump();
    EXPECT_TRUE(rig_.Register("s1").ok());
    EXPECT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
    EXPECT_TRUE(rig_.OpenSession("job/0").ok());
  }

  // Without revisions.
  static std::map<std::string, std::string> Contents(const MapMetaStore& store) {
    std::map<std::string, std::string> out;
    for (const auto& [key, kv] : store.keys) out[key] = kv.value;
    return out;
  }
  static void ExpectStatus(const absl::Status& status, absl::StatusCode code, const char* text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  // A coordinator that begins with a store; why it does not.
  absl::Status Begin(MapMetaStore* store) {
    CoreRig other(store, "other ");
    other.Pump();
    return other.core->serving() ? absl::OkStatus() : other.core->trouble();
  }

  MapMetaStore old_;
  MapMetaStore new_;
  TwinStore from_{&old_};
  TwinStore to_{&new_};
  CoreRig rig_;
};

TEST_F(MoveMetadataTest, ACoordinatorThatBeginsSeesAMarkBetweenItsReads) {
  constexpr size_t kKeys = std::size(keys::kHeadKeys);
  for (size_t marked_after = 0; marked_after <= kKeys; ++marked_after) {
    MapMetaStore store = old_;
    TwinStore twin(&store);
    CoreRig other(&store, "other ");
    ASSERT_TRUE(other.load_waiting && other.head_suffices);
    MetaStore::RangeResult read;
    for (size_t i = 0; i <= kKeys; ++i) {
      if (i == marked_after) {
        ASSERT_TRUE(ExportMetadata(/*mark=*/true, &twin).ok());
      }
      if (i == kKeys) break;
      const auto one = twin.Range(keys::kHeadKeys[i], "");
      ASSERT_TRUE(one.ok());
      read.revision = one->revision;
      read.kvs.insert(read.kvs.end(), one->kvs.begin(), one->kvs.end());
    }
    other.load_waiting = false;
    other.Step(LoadedEvent{read});
    other.Pump();
    EXPECT_FALSE(other.core->serving()) << marked_after;
    ExpectStatus(other.core->trouble(), absl::StatusCode::kFailedPrecondition,
                 "were exported from here");
  }
}

TEST_F(MoveMetadataTest, ThereAndBack) {
  const uint64_t plan = rig_.core->state().plan_revision();
  const uint64_t shard = rig_.core->state().shards().begin()->second.revision;
  auto exported = ExportMetadata(/*mark=*/true, &from_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->count(keys::kTables), 1u);
  ExpectStatus(Begin(&old_), absl::StatusCode::kFailedPrecondition, "were exported from here");

  const auto parsed = ParseExport(SerializeExport(*exported));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(ImportMetadata(*parsed, /*replaces_later=*/false, &to_).ok());
  std::map<std::string, std::string> expected = Contents(old_);
  expected[keys::kFormatKey] = keys::kFormat;
  expected[keys::kRevisionsKey] = absl::StrCat(old_.revision);
  EXPECT_EQ(Contents(new_), expected);
  EXPECT_LT(new_.revision, plan) << "its revisions begin anywhere";

  CoreRig later(&new_, "new ");
  later.Pump();
  ASSERT_TRUE(later.core->serving()) << later.core->trouble();
  EXPECT_GT(later.core->state().plan_revision(), plan);
  EXPECT_GT(later.core->state().shards().begin()->second.revision, shard);
  EXPECT_EQ(later.core->state().cluster_id(), rig_.core->state().cluster_id());
  ASSERT_TRUE(later.Create(CoreRig::Table("u")).ok());
  const uint64_t plan_there = later.core->state().plan_revision();

  // Back into the store that it came from, which still has what was true then.
  exported = ExportMetadata(/*mark=*/true, &to_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  ASSERT_TRUE(ImportMetadata(*exported, /*replaces_later=*/false, &from_).ok());
  ExpectStatus(Begin(&new_), absl::StatusCode::kFailedPrecondition, "were exported from here");
  CoreRig back(&old_, "back ");
  back.Pump();
  ASSERT_TRUE(back.core->serving()) << back.core->trouble();
  EXPECT_NE(back.core->state().FindTable("u"), nullptr);
  EXPECT_GT(back.core->state().plan_revision(), plan_there);
}

// The store went on after the file was written, and was exported again.
TEST_F(MoveMetadataTest, AnOlderExportIsRefusedUnlessAskedFor) {
  const auto older = ExportMetadata(/*mark=*/true, &from_);
  ASSERT_TRUE(older.ok()) << older.status();
  ASSERT_TRUE(ImportMetadata(*older, /*replaces_later=*/false, &to_).ok());
  CoreRig later(&new_, "new ");
  later.Pump();
  ASSERT_TRUE(later.Create(CoreRig::Table("u")).ok());
  const auto newer = ExportMetadata(/*mark=*/true, &to_);
  ASSERT_TRUE(newer.ok()) << newer.status();
  const std::map<std::string, std::string> before = Contents(new_);
  ExpectStatus(MayImport(*older, /*replaces_later=*/false, &to_),
               absl::StatusCode::kFailedPrecondition, "--replace-later");
  ExpectStatus(ImportMetadata(*older, /*replaces_later=*/false, &to_),
               absl::StatusCode::kFailedPrecondition, "exported later than the file was written");
  EXPECT_EQ(Contents(new_), before);
  EXPECT_TRUE(MayImport(*newer, /*replaces_later=*/false, &to_).ok());
  EXPECT_TRUE(MayImport(*newer, /*replaces_later=*/false, &from_).ok()) << "a later one";
  ASSERT_TRUE(ImportMetadata(*older, /*replaces_later=*/true, &to_).ok());
  CoreRig back(&new_, "back ");
  back.Pump();
  ASSERT_TRUE(back.core->serving()) << back.core->trouble();
  EXPECT_EQ(back.core->state().FindTable("u"), nullptr);
}

TEST_F(MoveMetadataTest, ADryRunChangesNothing) {
  const std::map<std::string, std::string> before = Contents(old_);
  ASSERT_TRUE(ExportMetadata(/*mark=*/false, &from_).ok());
  EXPECT_EQ(Contents(old_), before);
}

// It was held up while the metadata were exported: what it would write is in no file.
TEST_F(MoveMetadataTest, ACoordinatorThatWasHeldUpWritesNothingAfterTheExport) {
  ASSERT_TRUE(ExportMetadata(/*mark=*/true, &from_).ok());
  const auto exported = Contents(old_);
  EXPECT_FALSE(rig_.Create(CoreRig::Table("late")).ok());
  EXPECT_EQ(Contents(old_), exported);
}

TEST_F(MoveMetadataTest, AnExportMayBeRepeated) {
  const auto once = ExportMetadata(/*mark=*/true, &from_);
  const auto twice = ExportMetadata(/*mark=*/true, &from_);
  ASSERT_TRUE(once.ok() && twice.ok());
  EXPECT_EQ(once->records.size(), twice->records.size());
}

TEST_F(MoveMetadataTest, AStoreThatIsUsedIsRefused) {
  old_.Txn({}, {{Op::Kind::kPut, keys::kElectionKey, "h1:7400"}});
  ExpectStatus(ExportMetadata(true, &from_).status(), absl::StatusCode::kFailedPrecondition,
               "the coordinator at h1:7400 uses these metadata");
  old_.Txn({}, {{Op::Kind::kDelete, keys::kElectionKey, ""}});
  const auto exported = ExportMetadata(true, &from_);
  ASSERT_TRUE(exported.ok());
  new_.Txn({}, {{Op::Kind::kPut, keys::kElectionKey, "h2:7400"}});
  ExpectStatus(ImportMetadata(*exported, /*replaces_later=*/false, &to_),
               absl::StatusCode::kFailedPrecondition, "h2:7400");
  EXPECT_EQ(new_.keys.size(), 1u);
}

TEST_F(MoveMetadataTest, MetadataInUseAreNotOverwritten) {
  const auto exported = ExportMetadata(true, &from_);
  ASSERT_TRUE(exported.ok());
  CoreRig other(&new_, "other ");
  other.Pump();
  const std::map<std::string, std::string> before = Contents(new_);
  ExpectStatus(ImportMetadata(*exported, /*replaces_later=*/false, &to_),
               absl::StatusCode::kFailedPrecondition, "holds metadata of cluster");
  EXPECT_EQ(Contents(new_), before);
  // Also not those of another cluster that were exported.
  ASSERT_TRUE(ExportMetadata(true, &to_).ok());
  auto strange = *exported;
  strange.cluster_id = "strange";
  ExpectStatus(ImportMetadata(strange, /*replaces_later=*/false, &to_),
               absl::StatusCode::kFailedPrecondition, "and the file is of cluster strange");
}

// Cut short after each of its transactions, then run again.
TEST_F(MoveMetadataTest, AnImportThatWasCutShortHoldsOffCoordinatorsAndIsRunAgain) {
  const auto earlier = ExportMetadata(/*mark=*/false, &from_);
  ASSERT_TRUE(earlier.ok());
  for (int table = 0; table < 20; ++table) {  // more records than one transaction takes
    ASSERT_TRUE(rig_.Create(CoreRig::Table(absl::StrCat("more", table))).ok());
  }
  const auto exported = ExportMetadata(true, &from_);
  ASSERT_TRUE(exported.ok());
  ExportedMetadata strange = *exported;
  strange.cluster_id = "strange";
  class Breaks : public TwinStore {
   public:
    Breaks(MapMetaStore* twin, int left) : TwinStore(twin), left_(left) {}
    absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                  const std::vector<Op>& ops) override {
      if (left_-- == 0) return absl::UnavailableError("cut short (planted)");
      return TwinStore::Txn(compares, ops);
    }

   private:
    int left_;
  };
  int transactions = 0;
  for (absl::Status status = absl::UnknownError("first"); !status.ok(); ++transactions) {
    MapMetaStore target;
    Breaks breaks(&target, transactions);
    status = ImportMetadata(*exported, /*replaces_later=*/false, &breaks);
    if (status.ok()) break;
    ASSERT_LT(transactions, 100);
    if (transactions > 0) {
      MapMetaStore copy = target;
      ExpectStatus(Begin(&copy), absl::StatusCode::kFailedPrecondition,
                   "an import of metadata into here has not ended");
      TwinStore half(&copy);
      ExpectStatus(ExportMetadata(true, &half).status(), absl::StatusCode::kFailedPrecondition,
                   "an import into it has not ended");
    }
    TwinStore again(&target);
    if (transactions > 0) {
      ExpectStatus(MayImport(*earlier, /*replaces_later=*/false, &again),
                   absl::StatusCode::kFailedPrecondition, "--replace-later");
      ExpectStatus(ImportMetadata(strange, /*replaces_later=*/false, &again),
                   absl::StatusCode::kFailedPrecondition, "the file is of cluster strange");
      EXPECT_TRUE(MayImport(*earlier, /*replaces_later=*/true, &again).ok());
    }
    ASSERT_TRUE(ImportMetadata(*exported, /*replaces_later=*/false, &again).ok());
    EXPECT_TRUE(Begin(&target).ok());
  }
  EXPECT_GE(transactions, 4);
}

TEST_F(MoveMetadataTest, OtherFilesAreRefused) {
  const auto exported = ExportMetadata(true, &from_);
  ASSERT_TRUE(exported.ok());
  const std::string good = SerializeExport(*exported);
  std::string damaged = good;
  damaged[good.size() / 2] ^= 1;
  ExpectStatus(ParseExport(damaged).status(), absl::StatusCode::kDataLoss, "is damaged");
  ExpectStatus(ParseExport(good.substr(0, good.size() - 1)).status(), absl::StatusCode::kDataLoss,
               "is damaged");
  ExpectStatus(ParseExport(SerializeBackup(exported->records)).status(),
               absl::StatusCode::kDataLoss, "are no export of metadata");
  auto other = *exported;
  for (KeyValue& record : other.records) {
    if (record.key == keys::kFormatKey) record.value = "99";
  }
  ExpectStatus(ParseExport(SerializeExport(other)).status(), absl::StatusCode::kFailedPrecondition,
               "format \"99\"");
}

TEST_F(MoveMetadataTest, AnEmptyStoreHasNothingToExport) {
  ExpectStatus(ExportMetadata(true, &to_).status(), absl::StatusCode::kNotFound, "no metadata");
}

}  // namespace move_metadata_test
}  // namespace hotbed
