// The store of a shard without rows that nobody has used yet, as most shards are on a server with
// very many: it has what it takes to open the real one (three kilobytes), and does so at the first
// call that needs it. From then on it only stands in front of the real one, until its owner takes
// that in its place.
//
// As TieredStore: confined to the shard's executor, but for Stats.
#ifndef HOTBED_SERVER_TIERS_MEMORY_UNOPENED_STORE_H_
#define HOTBED_SERVER_TIERS_MEMORY_UNOPENED_STORE_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "server/tiers/api/host.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

class UnopenedStore : public TieredStore {
 public:
  // What the spill tier has of the shard, besides rows.
  struct Found {
    std::string meta;
    Lsn highest_lsn = 0;
  };
  // Opens the real stores of all shards; outlives them.
  class Opener {
   public:
    virtual ~Opener() = default;
    virtual std::unique_ptr<TieredStore> OpenRows(TierHost::ShardParams params, Found found) = 0;
    // A store was closed that was never opened.
    virtual void ClosedUnopened() = 0;
  };
  UnopenedStore(Opener* opener, TierHost::ShardParams params, Found found)
      : opener_(opener), params_(std::move(params)), found_(std::move(found)) {}
  ~UnopenedStore() override {
    if (real() == nullptr && !taken_) opener_->ClosedUnopened();
  }

  std::unique_ptr<TieredStore> TakeReplacement() override {
    taken_ = real() != nullptr;
    real_.store(nullptr, std::memory_order_relaxed);
    return std::move(owned_);
  }

  bool Pull(const RowReads& reads, Done done) override {
    return Opened()->Pull(reads, std::move(done));
  }
  bool Apply(const RowUpdates& updates, Done done) override {
    return Opened()->Apply(updates, std::move(done));
  }
  bool ApplyAtOnce(const RowUpdates& updates) override { return Opened()->ApplyAtOnce(updates); }
  void BeginReplay() override {
    replaying_ = true;
    if (real() != nullptr) real()->BeginReplay();
  }
  void EndReplay() override {
    replaying_ = false;
    if (real() != nullptr) real()->EndReplay();
  }
  absl::StatusOr<bool> Warm(absl::string_view block) override { return Opened()->Warm(block); }
  // Without rows in the spill tier the real store knows that already.
  void WarmedAll() override {
    if (real() != nullptr) real()->WarmedAll();
  }
  const std::string& meta() const override {
    return real() == nullptr ? found_.meta : real()->meta();
  }
  std::string SaveTouchFilter() const override {
    return real() == nullptr ? "" : real()->SaveTouchFilter();
  }
  absl::Status RestoreTouchFilter(absl::string_view saved) override {
    return saved.empty() ? absl::OkStatus() : Opened()->RestoreTouchFilter(saved);
  }
  Lsn highest_lsn() const override {
    return real() == nullptr ? found_.highest_lsn : real()->highest_lsn();
  }
  void WriteBackAll(Lsn applied_lsn, std::string meta, Done done) override {
    // Nothing was ever applied, so an empty meta says all.
    if (real() == nullptr && applied_lsn == 0 && found_.meta.empty()) return done(absl::OkStatus());
    Opened()->WriteBackAll(applied_lsn, std::move(meta), std::move(done));
  }
  void SetAppliedLsn(Lsn lsn) override {
    applied_lsn_ = lsn;
    if (real() != nullptr) real()->SetAppliedLsn(lsn);
  }
  bool PeekRow(uint64_t id, std::vector<uint8_t>* row) override {
    return Opened()->PeekRow(id, row);
  }
  bool BeginPass(bool further, std::vector<uint64_t>* positions) override {
    return Opened()->BeginPass(further, positions);
  }
  void ReadPass(absl::Span<const uint64_t> positions, LiveRows* rows) override {
    Opened()->ReadPass(positions, rows);
  }
  bool RankMemory(RowRanking* ranking, MemoryWalk* walk) override {
    return Opened()->RankMemory(ranking, walk);
  }
  bool VisitMemory(uint32_t rows_max, MemoryWalk* walk, RowVisitor visit) override {
    return Opened()->VisitMemory(rows_max, walk, visit);
  }
  StoreStats Stats() const override {
    const TieredStore* const store = real_.load(std::memory_order_acquire);
    return store == nullptr ? StoreStats() : store->Stats();
  }

 private:
  TieredStore* real() const { return real_.load(std::memory_order_relaxed); }
  TieredStore* Opened() {
    if (real() == nullptr) {
      owned_ = opener_->OpenRows(std::move(params_), std::move(found_));
      owned_->SetAppliedLsn(applied_lsn_);
      if (replaying_) owned_->BeginReplay();
      real_.store(owned_.get(), std::memory_order_release);
    }
    return real();
  }

  Opener* const opener_;
  TierHost::ShardParams params_;
  Found found_;
  Lsn applied_lsn_ = 0;
  bool replaying_ = false;
  bool taken_ = false;
  std::unique_ptr<TieredStore> owned_;
  std::atomic<TieredStore*> real_{nullptr};  // owned_
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_UNOPENED_STORE_H_
