// A folder for a store, of the test's name.
#ifndef HOTBED_TESTS_KV_KV_FIXTURE_H_
#define HOTBED_TESTS_KV_KV_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "kv/kv_store.h"

namespace hotbed {

class KvFixture : public ::testing::Test {
 protected:
  KvFixture() {
    dir_ = ::testing::TempDir() + "/kv_test_" + std::to_string(getpid()) + "_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~KvFixture() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  KvOptions Options() const {
    KvOptions options;
    options.dir = dir_ + "/db";
    options.memtable_bytes = 1 << 20;
    options.block_cache_bytes = 1 << 20;
    return options;
  }
  static std::unique_ptr<KvStore> MustOpen(const KvOptions& options) {
    auto store = KvStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  static void MustPut(KvStore* store, const std::string& key, const std::string& value) {
    auto batch = store->NewBatch();
    batch->Put(key, value);
    ASSERT_TRUE(store->Write(batch.get()).ok());
  }

  std::string dir_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_KV_KV_FIXTURE_H_
