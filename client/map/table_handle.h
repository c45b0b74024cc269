// The Table that callers hold. It also keeps the newest state of each shard that this client has
// seen, which is not part of the map.
#ifndef HOTBED_CLIENT_MAP_TABLE_HANDLE_H_
#define HOTBED_CLIENT_MAP_TABLE_HANDLE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/cut_from.h"
#include "common/ids.h"
#include "hotbed/client.h"

namespace hotbed {

// Thread-safe. Lives as long as its client.
class TableHandle final : public Table {
  struct Seen {
    Epoch epoch = 0;
    Lsn lsn = 0;
  };
  struct Acknowledged {
    Seen seen;
    Seen before;  // in the epoch seen before that one
  };
  static constexpr uint32_t kChunk = 256;  // shards; memory for them comes at the first use
  struct Chunk {
    absl::Mutex mu;
    std::array<Acknowledged, kChunk> shards ABSL_GUARDED_BY(mu);
  };

 public:
  TableHandle(const void* owner, TableOptions options, uint32_t shard_count)
      : owner_(owner), options_(std::move(options)), shard_count_(shard_count) {}
  ~TableHandle() override {
    for (auto& chunk : acknowledged_) delete chunk.load();
  }

  const TableOptions& options() const override { return options_; }
  uint32_t shard_count() const override { return shard_count_.load(std::memory_order_relaxed); }
  // The table has as many shards as `cut_from` (TableRoute) by now: those that are new to this
  // client begin where the shards were that they were cut from. What was seen of these in later
  // epochs says nothing about them: both parts give out LSNs since.
  void LearnCuts(absl::Span<const CutFrom> cut_from) const {
    const uint32_t known = shard_count();
    for (uint32_t shard = known; shard < cut_from.size(); ++shard) {
      Seen of_whole;
      {
        const uint32_t number = cut_from[shard].shard;
        Chunk& chunk = ChunkOf(number);
        absl::MutexLock lock(&chunk.mu);
        const Acknowledged& whole = chunk.shards[number % kChunk];
        of_whole = whole.seen.epoch <= cut_from[shard].epoch ? whole.seen : whole.before;
      }
      const bool before_cut = of_whole.epoch != 0 && of_whole.epoch <= cut_from[shard].epoch;
      if (before_cut) NoteAcknowledged(shard, of_whole.epoch, of_whole.lsn);
    }
    if (cut_from.size() > known) shard_count_.store(static_cast<uint32_t>(cut_from.size()));
  }
  TableId id() const { return options_.id; }
  const void* owner() const { return owner_; }  // the client that opened the table
  // "table NAME shard INDEX", for messages.
  std::string WhereOf(uint32_t shard) const {
    return absl::StrCat("table ", name(), " shard ", shard);
  }

  // For read-your-writes and monotonic reads: notes the newest state in which this client saw
  // `shard`, which later pulls name as the LSN that they need.
  //
  // Over epochs: with one replica, a later epoch begins with everything that was acknowledged, and
  // a restart of durability `checkpoint` may use LSNs again that it forgot, so the LSN holds within
  // its epoch only. With several replicas, LSNs continue over epochs, and a replica that is not the
  // primary may be behind.
  void NoteAcknowledged(uint32_t shard, Epoch epoch, Lsn lsn) const {
    SeenShards(*this).Note(shard, epoch, lsn);
  }
  // The LSN that a pull of `shard` in `epoch` needs; 0: any.
  Lsn LsnMin(uint32_t shard, Epoch epoch) const { return SeenShards(*this).Min(shard, epoch); }

  // The two for many shards. Neighbours that follow one another cost one lock together, which is
  // held until the end: the holder calls nothing else that locks.
  class SeenShards {
   public:
    explicit SeenShards(const TableHandle& table) : table_(table) {}
    ~SeenShards() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (chunk_ != nullptr) chunk_->mu.Unlock();
    }
    SeenShards(const SeenShards&) = delete;

    const TableHandle& table() const { return table_; }
    void Note(uint32_t shard, Epoch epoch, Lsn lsn) {
      Acknowledged& of_shard = Of(shard);
      Seen& seen = of_shard.seen;
      if (epoch > seen.epoch) of_shard.before = seen;
      if (epoch > seen.epoch || (epoch == seen.epoch && lsn > seen.lsn)) {
        seen.lsn = table_.LsnsContinue() ? std::max(seen.lsn, lsn) : lsn;
        seen.epoch = epoch;
      }
    }
    Lsn Min(uint32_t shard, Epoch epoch) {
      const Seen& seen = Of(shard).seen;
      if (seen.epoch == epoch) return seen.lsn;
      return table_.LsnsContinue() && seen.epoch < epoch ? seen.lsn : 0;
    }

   private:
    Acknowledged& Of(uint32_t shard) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      Chunk& chunk = table_.ChunkOf(shard);
      if (&chunk != chunk_) {
        if (chunk_ != nullptr) chunk_->mu.Unlock();
        chunk_ = &chunk;
        chunk.mu.Lock();
      }
      return chunk.shards[shard % kChunk];
    }

    const TableHandle& table_;
    Chunk* chunk_ = nullptr;  // its lock is held
  };

 private:
  bool LsnsContinue() const {
    const bool replicated = options_.replicas > 1 || options_.data_parallel;
    return replicated && options_.durability != Durability::kCheckpoint;
  }

  const void* const owner_;
  const TableOptions options_;

  Chunk& ChunkOf(uint32_t shard) const {
    std::atomic<Chunk*>& chunk = acknowledged_[shard / kChunk % acknowledged_.size()];
    Chunk* seen = chunk.load(std::memory_order_acquire);
    if (seen == nullptr) {
      auto made = std::make_unique<Chunk>();
      if (chunk.compare_exchange_strong(seen, made.get())) seen = made.release();
    }
    return *seen;
  }

  mutable std::atomic<uint32_t> shard_count_;
  mutable std::array<std::atomic<Chunk*>, 256> acknowledged_{};
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_TABLE_HANDLE_H_
