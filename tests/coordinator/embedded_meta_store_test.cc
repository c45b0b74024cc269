#include "planner/coordinator/store/embedded_meta_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/coordinator/memory_kv.h"
#include "tests/coordinator/meta_store_conformance.h"

namespace hotbed {
namespace embedded_meta_store_test {

class EmbeddedRig : public MetaStoreRig {
 public:
  MetaStore* store() override { return store_.get(); }
  bool Restart() override {
    store_.reset();
    auto store = EmbeddedMetaStore::Open(OpenKv());
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    return true;
  }

 protected:
  virtual std::unique_ptr<KvStore> OpenKv() = 0;
  std::unique_ptr<EmbeddedMetaStore> store_;
};

class MemoryRig : public EmbeddedRig {
 public:
  MemoryRig() { Restart(); }

 private:
  std::unique_ptr<KvStore> OpenKv() override { return std::make_unique<MemoryKv>(disk_); }
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
};

class DiskRig : public EmbeddedRig {
 public:
  DiskRig() {
    dir_ = ::testing::TempDir() + "/embedded_meta_store_test_" + std::to_string(getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    Restart();
  }
  ~DiskRig() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

 private:
  std::unique_ptr<KvStore> OpenKv() override {
    KvOptions options;
    options.dir = dir_;
    options.memtable_bytes = 1 << 20;
    options.block_cache_bytes = 1 << 20;
    auto kv = KvStore::Open(options);
    EXPECT_TRUE(kv.ok()) << kv.status();
    return *std::move(kv);
  }
  std::string dir_;
};

template <typename Rig>
std::unique_ptr<MetaStoreRig> Make() {
  return std::make_unique<Rig>();
}
INSTANTIATE_TEST_SUITE_P(Memory, MetaStoreConformance, ::testing::Values(&Make<MemoryRig>));
INSTANTIATE_TEST_SUITE_P(Disk, MetaStoreConformance, ::testing::Values(&Make<DiskRig>));

class EmbeddedMetaStoreTest : public ::testing::Test {
 protected:
  EmbeddedMetaStoreTest() { Open(); }
  void Open() {
    store_.reset();
    auto store = EmbeddedMetaStore::Open(std::make_unique<MemoryKv>(disk_));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  absl::StatusOr<TxnResult> Put(const std::string& key, const std::string& value) {
    return store_->Txn({}, {{Op::Kind::kPut, key, value}});
  }
  std::string Get(const std::string& key) {
    auto result = store_->Range(key, "");
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && !result->kvs.empty() ? result->kvs[0].value : "";
  }

  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<EmbeddedMetaStore> store_;
};

TEST_F(EmbeddedMetaStoreTest, AWriteThatFailedIsNotShown) {
  ASSERT_TRUE(Put("k", "1").ok());
  disk_->FailNext(MemoryDisk::Fault::kBeforeWrite);
  EXPECT_EQ(Put("k", "2").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Get("k"), "1");
  ASSERT_TRUE(Put("k", "3").ok()) << "it goes on by itself";
  EXPECT_EQ(Get("k"), "3");
}

TEST_F(EmbeddedMetaStoreTest, AWriteWhoseErrorLiedIsShownAsTheDiskHasIt) {
  const uint64_t before = Put("k", "1")->revision;
  disk_->FailNext(MemoryDisk::Fault::kAfterWrite);
  EXPECT_FALSE(Put("k", "2").ok());
  EXPECT_EQ(Get("k"), "2");
  auto read = store_->Range("k", "");
  EXPECT_EQ(read->kvs[0].mod_revision, before + 1);
  EXPECT_EQ(Put("k", "3")->revision, before + 2) << "a revision is never used twice";
}

TEST_F(EmbeddedMetaStoreTest, RefusesAnotherFormat) {
  store_.reset();
  {
    absl::MutexLock lock(&disk_->mu);
    disk_->content["v"] = "hotbed-meta-9";
  }
  auto store = EmbeddedMetaStore::Open(std::make_unique<MemoryKv>(disk_));
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr("hotbed-meta-9"));
}

TEST_F(EmbeddedMetaStoreTest, RefusesDamage) {
  ASSERT_TRUE(Put("key", "value").ok());
  store_.reset();
  {
    absl::MutexLock lock(&disk_->mu);
    disk_->content["kkey"] = "short";
  }
  auto store = EmbeddedMetaStore::Open(std::make_unique<MemoryKv>(disk_));
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr("key"));
}

TEST_F(EmbeddedMetaStoreTest, RefusesKeysAndValuesBeyondTheLimits) {
  EXPECT_EQ(Put("", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(std::string(2000, 'k'), "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put("k", std::string((1 << 20) + 1, 'v')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PrefixLimit, IsTheFirstKeyAfterThePrefix) {
  EXPECT_EQ(PrefixLimit("/a/"), "/a0");
  EXPECT_EQ(PrefixLimit("a\xff"), "b");
  EXPECT_GT(PrefixLimit(""), "\xff\xff\xff");
}

}  // namespace embedded_meta_store_test
}  // namespace hotbed
