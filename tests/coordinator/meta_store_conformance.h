// The contract of every metadata store, as a suite that each backend instantiates:
//
//   INSTANTIATE_TEST_SUITE_P(Disk, MetaStoreConformance, testing::Values(&Make<DiskRig>));
//
// Keys live under a prefix of the test's own, so that a shared server (etcd) serves as well as an
// empty store.
#ifndef HOTBED_TESTS_COORDINATOR_META_STORE_CONFORMANCE_H_
#define HOTBED_TESTS_COORDINATOR_META_STORE_CONFORMANCE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "planner/coordinator/store/meta_store.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/map_meta_store.h"

namespace hotbed {

// One backend under test.
class MetaStoreRig {
 public:
  virtual ~MetaStoreRig() = default;
  virtual MetaStore* store() = 0;
  // Kills the store and opens it again; false where a test cannot do that.
  virtual bool Restart() = 0;
};
using MakeRig = std::unique_ptr<MetaStoreRig> (*)();

class MetaStoreConformance : public ::testing::TestWithParam<MakeRig> {
 protected:
  MetaStoreConformance()
      : rig_(GetParam()()),
        prefix_(absl::StrCat(
            "/test/", ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/")) {}

  MetaStore* store() { return rig_->store(); }
  std::string Key(const std::string& name) const { return prefix_ + name; }
  Op Put(const std::string& name, const std::string& value) const {
    return {Op::Kind::kPut, Key(name), value};
  }
  Op Delete(const std::string& name) const { return {Op::Kind::kDelete, Key(name), ""}; }
  Compare Mod(const std::string& name, uint64_t revision) const { return {Key(name), revision}; }
  TxnResult MustTxn(const std::vector<Compare>& compares, const std::vector<Op>& ops) {
    auto result = store()->Txn(compares, ops);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : TxnResult();
  }
  std::vector<KeyValue> All() {
    auto result = store()->Range(prefix_, PrefixLimit(prefix_));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->kvs : std::vector<KeyValue>();
  }
  std::vector<std::string> AllText() {
    std::vector<std::string> out;
    for (const KeyValue& kv : All()) {
      out.push_back(absl::StrCat(kv.key.substr(prefix_.size()), "=", kv.value));
    }
    return out;
  }
  std::unique_ptr<MetaStoreRig> rig_;
  const std::string prefix_;
};

TEST_P(MetaStoreConformance, RangeIsSortedAndHalfOpen) {
  MustTxn({}, {Put("b", "2"), Put("a", "1"), Put("c", "3")});
  EXPECT_THAT(AllText(), ::testing::ElementsAre("a=1", "b=2", "c=3"));
  auto half = store()->Range(Key("a"), Key("c"));
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(half->kvs.size(), 2u);
  auto single = store()->Range(Key("b"), "");
  ASSERT_TRUE(single.ok());
  ASSERT_EQ(single->kvs.size(), 1u);
  EXPECT_EQ(single->kvs[0].value, "2");
  EXPECT_TRUE(store()->Range(Key("x"), "")->kvs.empty());
}

TEST_P(MetaStoreConformance, KeysAndValuesAreBytes) {
  const std::string bytes("\x00\xff\n\x01", 4);
  MustTxn({}, {Put(bytes, bytes), Put("empty", "")});
  auto read = store()->Range(Key(bytes), "");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->kvs.size(), 1u);
  EXPECT_EQ(read->kvs[0].value, bytes);
  EXPECT_EQ(All().size(), 2u);
}

TEST_P(MetaStoreConformance, RevisionsOfAKey) {
  const TxnResult first = MustTxn({}, {Put("k", "1")});
  const TxnResult second = MustTxn({}, {Put("k", "2")});
  EXPECT_GT(second.revision, first.revision);
  ASSERT_EQ(All().size(), 1u);
  EXPECT_EQ(All()[0].mod_revision, second.revision);
  MustTxn({}, {Delete("k")});
  const TxnResult again = MustTxn({}, {Put("k", "3")});
  EXPECT_EQ(All()[0].mod_revision, again.revision);
}

TEST_P(MetaStoreConformance, AllKeysOfATransactionShareItsRevision) {
  const TxnResult txn = MustTxn({}, {Put("a", "1"), Put("b", "2")});
  for (const KeyValue& kv : All()) EXPECT_EQ(kv.mod_revision, txn.revision);
}

TEST_P(MetaStoreConformance, ComparesGuardTheWholeTransaction) {
  const uint64_t a = MustTxn({}, {Put("a", "1")}).revision;
  EXPECT_TRUE(MustTxn({Mod("a", a), Mod("b", 0)}, {Put("b", "2")}).succeeded);
  const TxnResult failed = MustTxn({Mod("a", a), Mod("b", 0)}, {Put("a", "9"), Put("c", "9")});
  EXPECT_FALSE(failed.succeeded);
  EXPECT_THAT(AllText(), ::testing::ElementsAre("a=1", "b=2"));
  EXPECT_FALSE(MustTxn({Mod("a", a + 1000000)}, {Put("a", "9")}).succeeded);
  EXPECT_FALSE(MustTxn({Mod("none", 5)}, {Put("a", "9")}).succeeded);
  const uint64_t newer = MustTxn({}, {Put("a", "3")}).revision;
  EXPECT_FALSE(MustTxn({Mod("a", a)}, {Put("a", "9")}).succeeded);
  EXPECT_TRUE(MustTxn({Mod("a", newer)}, {Put("a", "4")}).succeeded);
}

TEST_P(MetaStoreConformance, DeletingNothingIsFine) {
  EXPECT_TRUE(MustTxn({}, {Delete("none")}).succeeded);
  EXPECT_TRUE(All().empty());
}

TEST_P(MetaStoreConformance, LimitsOfATransaction) {
  std::vector<Op> ops;
  for (int i = 0; i < MetaStore::kTxnOpsMax; ++i) ops.push_back(Put(absl::StrCat(i), "x"));
  EXPECT_TRUE(MustTxn({}, ops).succeeded);
  ops.push_back(Put("one more", "x"));
  EXPECT_EQ(store()->Txn({}, ops).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store()->Txn({}, {Put("k", "1"), Put("k", "2")}).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "a key twice";
  EXPECT_EQ(All().size(), static_cast<size_t>(MetaStore::kTxnOpsMax));
}

TEST_P(MetaStoreConformance, OneOfManyWritersWins) {
  MustTxn({}, {Put("counter", "0")});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < 25;) {
        auto read = store()->Range(Key("counter"), "");
        if (!read.ok() || read->kvs.empty()) {
          ADD_FAILURE() << "the counter cannot be read: " << read.status();
          return;
        }
        const KeyValue& kv = read->kvs[0];
        const std::string next = absl::StrCat(std::stoi(kv.value) + 1);
        const auto written =
            store()->Txn({Mod("counter", kv.mod_revision)}, {Put("counter", next)});
        if (!written.ok()) {
          ADD_FAILURE() << "the counter cannot be written: " << written.status();
          return;
        }
        done += written->succeeded;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(AllText(), ::testing::ElementsAre("counter=100"));
}

TEST_P(MetaStoreConformance, EverythingSurvivesARestart) {
  MustTxn({}, {Put("a", "1"), Put("b", "2")});
  const uint64_t revision = MustTxn({}, {Delete("b"), Put("a", "4")}).revision;
  const std::vector<KeyValue> before = All();
  if (!rig_->Restart()) GTEST_SKIP() << "this backend cannot be restarted by a test";
  const std::vector<KeyValue> after = All();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].key, before[i].key);
    EXPECT_EQ(after[i].value, before[i].value);
    EXPECT_EQ(after[i].mod_revision, before[i].mod_revision);
  }
  EXPECT_GT(MustTxn({}, {Put("c", "1")}).revision, revision);
}

TEST_P(MetaStoreConformance, AgreesWithItsDumbTwin) {
  const TestSeed seed(20260103);
  Random random(seed.value());
  MapMetaStore twin;
  // The twin counts its own revisions; compares are made with those of each.
  for (int i = 0; i < 600; ++i) {
    if (random.OneIn(100)) rig_->Restart();
    std::vector<Compare> compares, twin_compares;
    std::vector<Op> ops;
    std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
    std::shuffle(names.begin(), names.end(), random);
    for (uint64_t c = random.Uniform(3); c > 0; --c) {
      const std::string& name = names[random.Uniform(6)];
      const auto of = [&](const std::vector<KeyValue>& kvs) {
        return kvs.empty() ? uint64_t{0} : kvs[0].mod_revision;
      };
      const uint64_t off = random.OneIn(4) ? 1 : 0;
      compares.push_back({Key(name), of(store()->Range(Key(name), "")->kvs) + off});
      twin_compares.push_back({Key(name), of(twin.Range(Key(name), "").kvs) + off});
    }
    for (uint64_t o = random.Uniform(5); o > 0; --o) {
      ops.push_back(random.OneIn(3) ? Delete(names[o]) : Put(names[o], absl::StrCat(i)));
    }
    ASSERT_EQ(MustTxn(compares, ops).succeeded, twin.Txn(twin_compares, ops).succeeded) << i;
    const std::vector<KeyValue> all = All();
    const std::vector<KeyValue> expected = twin.Range(prefix_, PrefixLimit(prefix_)).kvs;
    ASSERT_EQ(all.size(), expected.size()) << i;
    for (size_t k = 0; k < all.size(); ++k) {
      ASSERT_EQ(all[k].key, expected[k].key);
      ASSERT_EQ(all[k].value, expected[k].value);
    }
  }
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_META_STORE_CONFORMANCE_H_
