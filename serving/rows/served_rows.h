// The rows of one table on a serving server: weights only, in a format of RowCoder, found by id.
//
// One thread writes, any number of threads read, and neither waits for the other. A row is never
// changed where it lies: its new value is written into a free slot, one store turns the index to
// it, and the old slot is used again once every reader that may see it has left (ReadEpochs). So a
// reader sees a row as it was between two updates.
//
// Beside its bytes a row costs about 11: 6 of its key, 4 of its index entry at a load of 0.86, and
// slack. Ids are spread by Mix64, of which the top 8 bits choose one of 256 stripes, the low 8 bits
// stand in the index entry, and the other 48 bits with the row. A stripe's index grows by a tenth,
// so that a growth moves a 256th of the table. Memory comes out of a budget that the tables of a
// server share, and goes back with the table.
//
// Slots are made in chunks. Those of all stripes lie one behind the other in blocks of memory, in
// the order in which they were made, and a block has the owner of each chunk. A walk over all rows
// does not follow the index: it takes the bits of all slots that hold rows at its begin, and then
// reads block after block, as fast as memory is read in order. A walk over one stripe reads its
// chunks.
#ifndef HOTBED_SERVING_ROWS_SERVED_ROWS_H_
#define HOTBED_SERVING_ROWS_SERVED_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/huge_buffer.h"
#include "serving/rows/read_epochs.h"
#include "serving/rows/row_coder.h"

namespace hotbed {

// Memory that tables share. Thread-safe.
class ServedMemory {
 public:
  explicit ServedMemory(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // False: there is no room, and nothing is taken.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  const uint64_t bytes_max_;
  std::atomic<uint64_t> used_{0};
};

// Is told of each change of a row before it is made, while readers still find the old row.
class RowChangeWatcher {
 public:
  virtual ~RowChangeWatcher() = default;
  // `row`: the bytes until now, null if there is no such row; `seen`: SetSeen was called of it.
  virtual void BeforeChange(uint64_t id, const uint8_t* row, bool seen) = 0;
};

class ServedRows {
 public:
  // `memory` outlives it.
  ServedRows(const RowCoder& coder, ServedMemory* memory);
  ~ServedRows();
  ServedRows(const ServedRows&) = delete;
  ServedRows& operator=(const ServedRows&) = delete;

  const RowCoder& coder() const { return coder_; }
  // Tells these rows from all others, on other servers too; 0: SetLife was not called.
  uint32_t life() const { return life_; }

  // --- the writer
  // Before any reader has them.
  void SetLife(uint32_t life) { life_ = life; }
  // Before changes are made, here or in rows that lie elsewhere: readers may see them from now on.
  void NoteChange(int64_t now_ns) { changed_ns_.store(now_ns); }
  // Sets the row. `*finite` is false if it reads as NaN (RowCoder::Encode). ResourceExhausted: the
  // budget is used up; the row is as it was.
  absl::Status Put(uint64_t id, const float* weights, bool* finite);
  // The same with the bytes of the row.
  absl::Status PutRow(uint64_t id, const uint8_t* row);
  // PutRow(id) comes soon.
  void PrefetchPut(uint64_t id) const;
  // The row's bytes until its next change, or null.
  const uint8_t* Get(uint64_t id) const;
  // False: there was no such row.
  bool Delete(uint64_t id);
  // The id of some row whose place a row of `id` could take; nothing: there is none.
  std::optional<uint64_t> OtherOf(uint64_t id, uint64_t random) const;
  // A Put marks its row. Unmark takes the marks of the rows of which `of` is true, DeleteUnmarked
  // deletes rows without one and returns how many: rows that were not put since. Both look at all.
  void Unmark(const std::function<bool(uint64_t id)>& of);
  uint64_t DeleteUnmarked();
  // A second mark, which a row keeps when it changes, and does not have at first.
  void SetSeen(uint64_t id);
  void ForgetSeen();
  static constexpr uint32_t kStripes = 256;
  // The ids of a stripe's rows without that mark.
  std::vector<uint64_t> Unseen(uint32_t stripe) const;
  // Null: nobody. While there is a watcher, a Put of the same bytes is no change. It outlives the
  // rows, or takes itself away.
  void SetWatcher(RowChangeWatcher* watcher) { watcher_ = watcher; }
  // Makes slots that no reader sees any more free. To be called after each batch of changes.
  void Reclaim();

  // --- any thread
  // A piece of memory that chunks are cut out of, from its begin on.
  struct Block {
    HugeBuffer buffer;
    uint32_t* owners = nullptr;  // per chunk, 8 bits of the stripe, 24 of its number there
    uint8_t* memory = nullptr;   // of chunks; before it are the owners, and keys that stand apart
    uint32_t chunks_max = 0;
    uint64_t paid = 0;                // bytes that were taken out of the budget; the writer's
    std::atomic<uint32_t> chunks{0};  // set after their owners
    std::atomic<const Block*> next{nullptr};
  };
  static constexpr uint32_t kSlotMask = (1u << 24) - 1;  // of the low 24 bits
  // A walk over rows in the order in which they lie in memory. It is continued by the Reader that
  // has begun it.
  struct Walk {
    bool whole = false;
    uint32_t stripe = 0;              // if it is not whole
    uint32_t chunk = 0;               // the next one, of the stripe or of the block
    const Block* block = nullptr;     // if it is whole
    std::vector<uint32_t> rows;       // per chunk, a bit per slot that had a row at the begin
    std::vector<uint32_t> begins;     // if it is whole: of the stripes' chunks in `rows`
    const uint8_t* memory = nullptr;  // of the chunk that it is in
    uint32_t bits = 0;                // its rows that were not met with yet

    // Where `rows` has the bits of a chunk of a block.
    uint64_t PlaceOf(uint32_t owner) const {
      return begins[owner >> 24] + uint64_t{owner & kSlotMask};
    }
  };
  // Rows that lie side by side, row_stride() bytes from one to the next.
  struct Run {
    const uint8_t* rows = nullptr;
    uint32_t count = 0;
    uint32_t stripe = 0;           // of all of them,
    const Block* block = nullptr;  // or null, and the block tells it of each
  };
  uint32_t row_stride() const { return stride_; }
  uint32_t StripeOf(const Run& run, const uint8_t* row) const {
    if (run.block == nullptr) return run.stripe;
    return run.block->owners[static_cast<uint64_t>(row - run.block->memory) / chunk_bytes_] >> 24;
  }

  // Rows that a Reader has found stay as they are until its end, which should come soon.
  class Reader {
   public:
    explicit Reader(const ServedRows& rows) : rows_(rows), place_(rows.epochs_.Enter()) {}
    ~Reader() { rows_.epochs_.Leave(place_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    const ServedRows& rows() const { return rows_; }
    // The row's bytes (coder().row_bytes(), unaligned), or null.
    const uint8_t* Find(uint64_t id) const;
    // Find(id) comes soon. Each call needs the memory that the one before brings to the cache: the
    // entry of the index, the place of the row's chunk, and the row with its key.
    void Prefetch(uint64_t id) const;
    void PrefetchChunk(uint64_t id) const;
    void PrefetchRow(uint64_t id) const;
    // Begins a walk over the rows that there are: of a stripe at a moment of this call, or of each
    // stripe at a moment of its own.
    void Begin(uint32_t stripe, Walk* walk) const;
    void BeginWhole(Walk* walk) const;
    // Continues it: tells where rows are, as they were at that moment, whatever became of them
    // since. At most `rows_max` of them, and false at the end.
    bool Next(Walk* walk, uint32_t rows_max, Run* run) const;
    // The rows that have the id of a row which a walk of `stripe` has met with: itself, or its
    // newer value, or nothing. Another id is told besides in one of 2^56 cases.
    void Identify(uint32_t stripe, const uint8_t* row,
                  absl::FunctionRef<void(uint64_t id, const uint8_t* now)> tell) const;

   private:
    static constexpr uint32_t kNoSlot = UINT32_MAX;
    // The first entry with the digest of this position is mostly the one of its row.
    uint32_t LikelySlot(uint64_t position) const;
    // Appends the bits of a stripe's chunks.
    void TakeBits(uint32_t stripe, std::vector<uint32_t>* bits) const;
    // Goes on to the next chunk with rows.
    bool NextChunk(Walk* walk) const;
    // Adds chunks that follow the run in its block and are full of rows.
    void TakeFullChunks(Walk* walk, uint32_t rows_max, Run* run) const;
    uint32_t FullBits() const { return ~0u >> (32 - rows_.chunk_rows_); }

    const ServedRows& rows_;
    const size_t place_;
  };
  // The last NoteChange; 0: there was none. To be asked after rows were read.
  int64_t changed_ns() const { return changed_ns_.load(); }
  uint64_t rows() const { return count_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  using RowBits = std::atomic<uint32_t>;
  struct Index {
    explicit Index(uint32_t slots)
        : capacity(slots), entries(std::make_unique<std::atomic<uint32_t>[]>(slots)) {}
    const uint32_t capacity;
    // 0: empty; else 8 bits of the id's position, and 24 bits: kGone, or the slot above it.
    const std::unique_ptr<std::atomic<uint32_t>[]> entries;
  };
  struct Stripe {
    std::atomic<Index*> index{nullptr};
    std::atomic<uint8_t**> chunks{nullptr};
    std::atomic<RowBits*> bits{nullptr};  // per chunk, its slots that hold rows
    std::atomic<uint32_t> slots{0};       // of all chunks; set after `chunks` and `bits` have them
    std::atomic<uint64_t> moves{0};  // of rows from slot to slot, between the two changes of bits
    // The writer's:
    uint32_t chunks_max = 0;  // room in `chunks` and `bits`
    uint32_t used = 0;        // entries that are not empty
    uint32_t live = 0;
    std::vector<uint32_t> free;
    std::vector<uint32_t> marks;  // per chunk, a bit per slot
    std::vector<uint32_t> seen;   // likewise
  };
  struct RetiredSlot {
    uint64_t epoch;
    uint32_t stripe;
    uint32_t slot;
  };
  struct RetiredArray {
    uint64_t epoch;
    std::unique_ptr<Index> index;
    std::unique_ptr<uint8_t*[]> chunks;
    std::unique_ptr<RowBits[]> bits;
    uint64_t bytes;
  };
  static constexpr uint32_t kGone = 1;  // in the low bits of an entry
  static constexpr uint32_t kFirstSlot = 2;
  static constexpr uint32_t kKeyBytes = 6;
  static uint32_t HomeOf(uint64_t position, uint32_t capacity) {
    return static_cast<uint32_t>(((position << 8) >> 32) * capacity >> 32);
  }
  uint8_t* RecordOf(const Stripe& stripe, uint32_t slot) const {
    return stripe.chunks.load()[slot >> chunk_shift_] +
           uint64_t{slot & (chunk_rows_ - 1)} * stride_;
  }
  // The key stands behind the row; or, so that rows whose size is a power of two begin with cache
  // lines, with the other keys of its block before all of its rows.
  uint8_t* KeyOf(const uint8_t* record) const {
    if (row_shift_ == 0) return const_cast<uint8_t*>(record) + coder_.row_bytes();
    const auto at = reinterpret_cast<uintptr_t>(record);
    const uint64_t in_block = at % kHugePageBytes;
    return reinterpret_cast<uint8_t*>(at - in_block + (in_block >> row_shift_) * kKeyBytes);
  }
  uint64_t PositionOf(uint32_t stripe, uint32_t entry) const;
  bool HasKey(const uint8_t* record, uint64_t position) const;
  // Where the id's entry is; null: it has none.
  std::atomic<uint32_t>* FindEntry(const Stripe& stripe, uint64_t position) const;

  // Tells readers that the slot holds a row from now on, or that it does not.
  void SetRowBit(const Stripe& stripe, uint32_t slot) {
    stripe.bits.load()[slot >> chunk_shift_].fetch_or(MaskOf(slot));
  }
  void ClearRowBit(const Stripe& stripe, uint32_t slot) {
    stripe.bits.load()[slot >> chunk_shift_].fetch_and(~MaskOf(slot));
  }
  uint32_t MaskOf(uint32_t slot) const { return 1u << (slot & (chunk_rows_ - 1)); }

  // `fill` writes the row's bytes.
  template <typename Fill>
  absl::Status Write(uint64_t id, Fill fill);
  // Turns an entry to the row in `slot`.
  void Replace(uint32_t number, std::atomic<uint32_t>* present, uint32_t slot, uint32_t entry);
  bool IsSeen(const Stripe& stripe, uint32_t slot) const {
    return (stripe.seen[slot >> chunk_shift_] & MaskOf(slot)) != 0;
  }
  absl::Status TakeSlot(Stripe* stripe, uint32_t* slot);
  absl::Status AddChunks(Stripe* stripe);
  absl::Status MakeChunkRoom(Stripe* stripe, uint32_t chunks, uint32_t count);
  absl::Status AddBlock();
  // Takes memory for the first `chunks` of a block.
  absl::Status Pay(uint64_t chunks, Block* block);
  absl::Status MakeRoom(uint32_t number);
  void Retire(uint32_t stripe, uint32_t slot);
  void Unlink(uint32_t number, std::atomic<uint32_t>* entry);
  // Calls `each` with every entry that holds a row.
  void ForEach(const std::function<void(uint32_t stripe, std::atomic<uint32_t>* entry)>& each);
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  absl::Status Full() const;

  const RowCoder coder_;
  const uint32_t row_shift_;  // of a row's size, if keys stand apart; else 0
  const uint32_t stride_;
  const uint32_t chunk_rows_;  // a power of two
  const uint32_t chunk_shift_;
  const uint64_t chunk_bytes_;
  ServedMemory* const memory_;
  RowChangeWatcher* watcher_ = nullptr;
  uint32_t life_ = 0;
  mutable ReadEpochs epochs_;
  std::array<Stripe, kStripes> stripes_;
  std::atomic<int64_t> changed_ns_{0};
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> bytes_{0};
  std::deque<Block> blocks_;  // the last one has room
  std::atomic<const Block*> first_block_{nullptr};
  std::deque<RetiredSlot> retired_;
  std::deque<RetiredArray> retired_arrays_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_SERVED_ROWS_H_
