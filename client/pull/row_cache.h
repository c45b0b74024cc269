// Rows that this client has pulled lately, for tables whose readers accept rows of some steps or
// seconds ago (docs/tables.md, "Rows kept in the client"). Thread-safe.
//
// A row is a pair of a moment and a version. The moment is that of the *planning* of its pull, with
// the client's step then, so that a bound on the age holds however long the answer took. The
// version is (epoch, LSN) of the answer: a kept row gives way to a later version only, and counts
// for nothing once the map shows another epoch of its shard.
//
// Own pushes: BeginPush removes the rows of a push before it is sent, and fences them: their
// answers are kept only if their pull was planned after every push to them was answered, and if
// they are as of the newest state of the shard that this client has seen, or later: the push is in.
//
// Memory: one block of fixed size. Rows lie in a ring, each behind a header, in the order in which
// they came, which is that of their ages; new rows overwrite the oldest ones. The index has buckets
// of a cache line, with up to seven rows and the fence of all ids of the bucket. A slot names the
// row by its place in the endless sequence of all rows, so that a row that was overwritten is known
// by its number, and the ring needs no list of what it holds.
#ifndef HOTBED_CLIENT_PULL_ROW_CACHE_H_
#define HOTBED_CLIENT_PULL_ROW_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/batch/batch_plan.h"
#include "client/batch/scatter.h"
#include "client/map/cluster_map.h"
#include "client/map/table_handle.h"
#include "common/huge_buffer.h"
#include "common/ids.h"
#include "hotbed/client.h"
#include "row_math/types.h"

namespace hotbed {

class RowCache {
 public:
  static constexpr uint64_t kBytesMin = 4ull << 20;
  static constexpr uint64_t kBytesMax = 1ull << 40;

  // When a pull was planned.
  struct Moment {
    uint64_t step = 0;          // of the client; 0: it has named none
    int64_t ns = 0;             // of the client's clock
    uint64_t pushes_ended = 0;  // all own pushes up to this one were answered
  };

  // An own push: rows that it has changed are not kept while this lives. Move-only.
  class OwnPush {
   public:
    OwnPush() = default;
    OwnPush(RowCache* cache, uint64_t number) : cache_(cache), number_(number) {}
    OwnPush(OwnPush&& other) noexcept { *this = std::move(other); }
    OwnPush& operator=(OwnPush&& other) noexcept {
      std::swap(cache_, other.cache_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~OwnPush() {
      if (cache_ != nullptr) cache_->EndPush(number_);
    }

   private:
    friend class RowCache;
    RowCache* cache_ = nullptr;
    uint64_t number_ = 0;
  };

  // What a pull asks for, and where it wants rows.
  struct Wanted {
    Moment at;
    RowType wire_type = RowType::kFp32;
    bool flags = false;  // whether each row exists
    bool streaming = false;
    absl::Span<const ScatterTarget> targets;
  };

  // Rows of one shard as they were answered.
  struct Answered {
    Moment asked;
    const TableHandle* table = nullptr;
    uint32_t shard = 0;
    Epoch epoch = 0;
    Lsn lsn = 0;
    RowType wire_type = RowType::kFp32;
    const uint64_t* unique = nullptr;  // the id of row k is unique[order[k]]
    const uint32_t* order = nullptr;
    absl::Span<const uint8_t* const> rows;  // in wire form
    const uint8_t* flags = nullptr;         // or null: unknown
  };

  // Null where the options ask for none; they are valid. ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<RowCache>> Create(const ClientOptions& options);

  // The table is asynchronous, has whole rows in each shard, and the options allow it.
  bool Keeps(const TableOptions& table) const;

  // The caller has come to `step`; earlier steps change nothing.
  void NoteStep(uint64_t step);
  Moment MomentAt(int64_t now_ns) const ABSL_LOCKS_EXCLUDED(pushes_mu_);

  // Writes the rows of the group that are young enough to their targets, and takes their ids out of
  // the group. `group` has no split yet.
  void TakeRows(const TableRoute& route, const Wanted& wanted, TableGroup* group)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Keep(const Answered& answered) ABSL_LOCKS_EXCLUDED(mu_);

  // Before a push is sent; RemoveRows for each of its parts.
  OwnPush BeginPush() ABSL_LOCKS_EXCLUDED(pushes_mu_);
  void RemoveRows(const OwnPush& push, TableId table, absl::Span<const uint64_t> ids)
      ABSL_LOCKS_EXCLUDED(mu_);

  void AddTo(ClientStats* stats) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Place = uint64_t;  // in units, of all rows since the beginning; 0: none
  static constexpr uint64_t kUnit = 64;
  static constexpr int kSlots = 7;

  struct Bucket {
    uint64_t fence;          // the last own push to an id of this bucket
    uint64_t slots[kSlots];  // 0: empty; else a tag of 16 bits and a Place
  };
  static_assert(sizeof(Bucket) == kUnit);

  struct Header {
    uint64_t id;
    Epoch epoch;
    Lsn lsn;
    uint64_t step;
    int64_t ns;
    TableId table;
    uint32_t shard;
    uint32_t units;  // this header included
    uint8_t wire_type;
    uint8_t exists;  // 0, 1 or kUnknown
    bool dead;       // removed or replaced
  };
  static_assert(sizeof(Header) <= kUnit);
  static constexpr uint8_t kUnknown = 2;

  RowCache(const ClientOptions& options, HugeBuffer memory);

  void EndPush(uint64_t number) ABSL_LOCKS_EXCLUDED(pushes_mu_);

  static uint64_t HashOf(TableId table, uint64_t id);
  static void HashAll(TableId table, absl::Span<const uint64_t> ids, std::vector<uint64_t>* hashes);
  Bucket* BucketOf(uint64_t hash) const { return buckets_ + (hash & bucket_mask_); }
  // `place` has a row that is in the ring, or is head_.
  uint8_t* At(Place place) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return ring_ + (place - round_ + (place < round_ ? ring_units_ : 0)) * kUnit;
  }
  Header* HeaderAt(Place place) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return reinterpret_cast<Header*>(At(place));
  }
  bool Holds(Place place) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return place + ring_units_ >= head_;
  }
  // Fetches what the next calls of Find need: buckets early, headers a little later.
  void Prefetch(absl::Span<const uint64_t> hashes, size_t i) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // The slot of the row, or null.
  uint64_t* Find(uint64_t hash, TableId table, uint64_t id) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool IsYoung(const Header& row, const Moment& at) const;
  void Remove(uint64_t* slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A slot for a new row, and room for it in the ring: both are made from older rows.
  uint64_t* SlotFor(Bucket* bucket, const Moment& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance(uint64_t units) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Place RoomFor(uint32_t units, const Moment& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRoom(uint32_t units, const Moment& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepRow(const Answered& answered, size_t k, uint64_t hash, bool newest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t steps_max_;  // below 0: no bound
  const int64_t age_ns_max_;
  const std::vector<std::string> tables_;  // empty: all
  const HugeBuffer memory_;
  Bucket* const buckets_;
  const uint64_t bucket_mask_;
  uint8_t* const ring_;
  const uint64_t ring_units_;

  std::atomic<uint64_t> step_{0};
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> misses_{0};

  mutable absl::Mutex pushes_mu_;
  uint64_t last_push_ ABSL_GUARDED_BY(pushes_mu_) = 0;
  std::set<uint64_t> open_pushes_ ABSL_GUARDED_BY(pushes_mu_);

  mutable absl::Mutex mu_;
  Place head_ ABSL_GUARDED_BY(mu_);   // where the next row goes
  Place round_ ABSL_GUARDED_BY(mu_);  // that is at the beginning of the ring; not above head_
  Place tail_ ABSL_GUARDED_BY(mu_);   // of the oldest row
  uint64_t evicted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_ROW_CACHE_H_
