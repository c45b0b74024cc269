// A tiered store and a tier host for tests of a shard, without rows.
#ifndef HOTBED_TESTS_SHARD_FAKE_STORE_H_
#define HOTBED_TESTS_SHARD_FAKE_STORE_H_

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

// Rows that remember nothing. The test decides beforehand how updates end.
class FakeStore final : public TieredStore {
 public:
  FakeStore(Executor* executor, std::string meta) : executor_(executor), meta_(std::move(meta)) {}

  bool Pull(const RowReads&, Done done) override {
    if (!hold_pulls) return true;
    held_pulls.push_back(std::move(done));
    return false;
  }
  bool Apply(const RowUpdates& updates, Done done) override {
    if (hold_updates) {
      held_updates.push_back([this, updates, done = std::move(done)]() mutable {
        executor_->Run([this, updates, done = std::move(done)]() mutable {
          applied.push_back(updates.lsn);
          done(absl::OkStatus());
        });
      });
      return false;
    }
    if (results.empty()) {
      applied.push_back(updates.lsn);
      return true;
    }
    absl::Status status = std::move(results.front());
    results.pop_front();
    executor_->Run([done = std::move(done), status = std::move(status)]() mutable {
      done(std::move(status));
    });
    return false;
  }
  void BeginReplay() override {}
  void EndReplay() override {}
  const std::string& meta() const override { return meta_; }
  Lsn highest_lsn() const override { return highest; }
  void WriteBackAll(Lsn, std::string, Done done) override { done(absl::OkStatus()); }
  void SetAppliedLsn(Lsn) override {}
  bool PeekRow(uint64_t, std::vector<uint8_t>* row) override {
    *row = peeked;
    return true;
  }
  StoreStats Stats() const override { return {}; }

  bool hold_pulls = false;
  bool hold_updates = false;
  std::vector<absl::AnyInvocable<void()>> held_updates;  // each ends one
  std::vector<Done> held_pulls;
  std::deque<absl::Status> results;  // of the next updates; then all are OK
  std::vector<Lsn> applied;
  Lsn highest = 0;              // stamped in the rows, as found
  std::vector<uint8_t> peeked;  // every row, as PeekRow sees it

 private:
  Executor* const executor_;
  const std::string meta_;
};

class FakeTiers final : public TierHost {
 public:
  absl::StatusOr<std::unique_ptr<TieredStore>> OpenShard(ShardParams params) override {
    auto opened = std::make_unique<FakeStore>(params.executor, meta);
    store = opened.get();
    return opened;
  }
  absl::Status DeleteShard(const SpillShard&) override { return absl::OkStatus(); }
  absl::Status InheritMeta(const SpillShard&, const SpillShard&) override {
    return absl::OkStatus();  // every shard that opens gets `meta`
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadShard(const SpillShard&, Lsn) override {
    return absl::UnavailableError("a fake has no rows");
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const SpillShard&, LivePass) override {
    return absl::UnavailableError("a fake has no rows");
  }
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> WriteShard(const SpillShard&) override {
    return absl::UnavailableError("a fake takes no rows");
  }
  absl::Status Flush() override { return absl::OkStatus(); }
  absl::Status Freeze() override { return absl::OkStatus(); }
  absl::Status RestoreTable(TableId) override { return absl::OkStatus(); }
  Health GetHealth() const override { return {}; }
  absl::Status TryResume() override { return absl::OkStatus(); }
  absl::Status Renew() override { return absl::UnimplementedError("no test needs it"); }

  FakeStore* store = nullptr;
  std::string meta;  // of the next shard that is opened
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_FAKE_STORE_H_
