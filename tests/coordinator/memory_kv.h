// A KvStore in memory that outlives its handles, so that a test can kill a store and open it again,
// and that fails on command. Thread-safe.
#ifndef HOTBED_TESTS_COORDINATOR_MEMORY_KV_H_
#define HOTBED_TESTS_COORDINATOR_MEMORY_KV_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kv/kv_store.h"

namespace hotbed {

// The contents of the disk.
struct MemoryDisk {
  enum class Fault {
    kNone,
    kBeforeWrite,
    kAfterWrite
  };  // of the next write; after: it is there, but an error is told
  absl::Mutex mu;
  std::map<std::string, std::string> content ABSL_GUARDED_BY(mu);
  Fault fault ABSL_GUARDED_BY(mu) = Fault::kNone;
  int writes ABSL_GUARDED_BY(mu) = 0;

  void FailNext(Fault f) {
    absl::MutexLock lock(&mu);
    fault = f;
  }
};

class MemoryKv : public KvStore {
 public:
  explicit MemoryKv(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {}

  std::unique_ptr<KvBatch> NewBatch() override { return std::make_unique<Batch>(); }
  absl::Status Write(KvBatch* batch) override {
    absl::MutexLock lock(&disk_->mu);
    const MemoryDisk::Fault fault = std::exchange(disk_->fault, MemoryDisk::Fault::kNone);
    const absl::Status error = absl::ResourceExhaustedError("no space left (planted)");
    if (fault == MemoryDisk::Fault::kBeforeWrite) return error;
    for (const auto& [key, value] : static_cast<Batch*>(batch)->entries) {
      if (value.has_value()) {
        disk_->content[key] = *value;
      } else {
        disk_->content.erase(key);
      }
    }
    ++disk_->writes;
    return fault == MemoryDisk::Fault::kAfterWrite ? error : absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(absl::string_view key) override {
    absl::MutexLock lock(&disk_->mu);
    auto it = disk_->content.find(std::string(key));
    if (it == disk_->content.end()) return absl::NotFoundError(absl::StrCat("no key ", key));
    return it->second;
  }
  absl::Status MultiGet(absl::Span<const absl::string_view> keys,
                        const std::function<void(size_t, absl::string_view)>& visit) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      absl::StatusOr<std::string> value = Get(keys[i]);
      if (value.ok()) visit(i, *value);
    }
    return absl::OkStatus();
  }
  absl::Status Scan(
      absl::string_view first, absl::string_view limit,
      const std::function<bool(absl::string_view, absl::string_view)>& visit) override {
    absl::MutexLock lock(&disk_->mu);
    for (auto it = disk_->content.lower_bound(std::string(first));
         it != disk_->content.end() && it->first < limit; ++it) {
      if (!visit(it->first, it->second)) break;
    }
    return absl::OkStatus();
  }
  std::unique_ptr<KvSnapshot> TakeSnapshot() override {
    auto copy = std::make_shared<MemoryDisk>();
    absl::MutexLock lock(&disk_->mu);
    absl::MutexLock copy_lock(&copy->mu);
    copy->content = disk_->content;
    return std::make_unique<Snapshot>(copy);
  }
  uint64_t EstimateBytes(absl::string_view, absl::string_view) override { return 0; }
  absl::Status Flush() override { return absl::OkStatus(); }
  absl::Status Freeze(const std::string&) override {
    return absl::UnimplementedError("memory cannot be frozen");
  }
  Usage GetUsage() const override { return {}; }
  absl::Status TryResume() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<KvFile>> NewFile() override { return OfRowsOnly(); }
  absl::Status DeleteFiles(absl::string_view, absl::string_view) override { return OfRowsOnly(); }
  absl::Status Compact(absl::string_view, absl::string_view) override { return OfRowsOnly(); }

 private:
  static absl::Status OfRowsOnly() {
    return absl::UnimplementedError("the metadata store has no files of its own");
  }

  struct Batch : KvBatch {
    void Put(absl::string_view key, absl::string_view value) override {
      entries.emplace_back(std::string(key), std::string(value));
    }
    void Delete(absl::string_view key) override {
      entries.emplace_back(std::string(key), std::nullopt);
    }
    void DeleteRange(absl::string_view, absl::string_view) override {
      ADD_FAILURE() << "the metadata store deletes single keys";
    }
    void Clear() override { entries.clear(); }
    uint64_t bytes() const override { return 0; }
    std::vector<std::pair<std::string, std::optional<std::string>>> entries;
  };

  class Snapshot : public KvSnapshot {
   public:
    explicit Snapshot(std::shared_ptr<MemoryDisk> copy) : copy_(std::move(copy)) {}
    absl::Status Scan(
        absl::string_view first, absl::string_view limit,
        const std::function<bool(absl::string_view, absl::string_view)>& visit) override {
      return MemoryKv(copy_).Scan(first, limit, visit);
    }
    absl::Status MultiGet(absl::Span<const absl::string_view> keys,
                          const std::function<void(size_t, absl::string_view)>& visit) override {
      return MemoryKv(copy_).MultiGet(keys, visit);
    }

   private:
    const std::shared_ptr<MemoryDisk> copy_;
  };

  const std::shared_ptr<MemoryDisk> disk_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_MEMORY_KV_H_
