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
#ifndef HOTBED_SERVING_ROWS_SERVED_ROWS_H_
#define HOTBED_SERVING_ROWS_SERVED_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
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

  // --- the writer
  // Sets the row. `*finite` is false if it reads as NaN (RowCoder::Encode). ResourceExhausted: the
  // budget is used up; the row is as it was.
  absl::Status Put(uint64_t id, const float* weights, bool* finite);
  // The same with the bytes of the row.
  absl::Status PutRow(uint64_t id, const uint8_t* row);
  // The row's bytes until its next change, or null.
  const uint8_t* Get(uint64_t id) const;
  // False: there was no such row.
  bool Delete(uint64_t id);
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
  // How far a walk over all rows has come. Several Readers may continue it, one after another.
  struct Walk {
    uint32_t stripe = 0;
    uint32_t entry = 0;
    uint64_t index = 0;  // the serial number of the stripe's index; 0: the stripe begins
  };
  // A row that a walk has met with.
  struct Met {
    const uint8_t* row = nullptr;
    uint8_t stripe = 0;
    uint8_t digest = 0;
  };

  // Rows that a Reader has found stay as they are until its end, which should come soon.
  class Reader {
   public:
    explicit Reader(const ServedRows& rows) : rows_(rows), place_(rows.epochs_.Enter()) {}
    ~Reader() { rows_.epochs_.Leave(place_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    // The row's bytes (coder().row_bytes(), unaligned), or null.
    const uint8_t* Find(uint64_t id) const;
    // Find(id) comes soon.
    void Prefetch(uint64_t id) const;
    // Continues a walk: at most `rows_max` rows, or 0 at its end. A row that is there from the
    // begin of the walk to its end is met with at least once; where it changes, maybe several times
    // and by several of its values.
    uint32_t Next(Walk* walk, Met* met, uint32_t rows_max) const;
    uint64_t IdOf(const Met& met) const;
    uint32_t row_bytes() const { return rows_.coder_.row_bytes(); }

   private:
    const ServedRows& rows_;
    const size_t place_;
  };
  uint64_t rows() const { return count_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Index {
    Index(uint32_t slots, uint64_t number)
        : capacity(slots),
          serial(number),
          entries(std::make_unique<std::atomic<uint32_t>[]>(slots)) {}
    const uint32_t capacity;
    const uint64_t serial;  // of the indexes of a table, from 1
    // 0: empty; else 8 bits of the id's position, and 24 bits: kGone, or the slot above it.
    const std::unique_ptr<std::atomic<uint32_t>[]> entries;
  };
  struct Stripe {
    std::atomic<Index*> index{nullptr};
    std::atomic<uint8_t**> chunks{nullptr};
    // The writer's:
    uint32_t chunks_max = 0;  // room in `chunks`
    uint32_t slots = 0;       // ever used
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
    uint64_t bytes;
  };
  static constexpr uint32_t kGone = 1;  // in the low bits of an entry
  static constexpr uint32_t kFirstSlot = 2;
  static constexpr uint32_t kSlotMask = (1u << 24) - 1;
  static constexpr uint32_t kKeyBytes = 6;

  static uint32_t HomeOf(uint64_t position, uint32_t capacity) {
    return static_cast<uint32_t>(((position << 8) >> 32) * capacity >> 32);
  }
  uint8_t* RecordOf(const Stripe& stripe, uint32_t slot) const {
    return stripe.chunks.load()[slot / chunk_rows_] + uint64_t{slot % chunk_rows_} * stride_;
  }
  uint64_t PositionOf(uint32_t stripe, uint32_t entry) const;
  bool HasKey(const uint8_t* record, uint64_t position) const;
  // Where the id's entry is; null: it has none.
  std::atomic<uint32_t>* FindEntry(const Stripe& stripe, uint64_t position) const;

  // `fill` writes the row's bytes.
  template <typename Fill>
  absl::Status Write(uint64_t id, Fill fill);
  // Turns an entry to the row in `slot`.
  void Replace(uint32_t number, std::atomic<uint32_t>* present, uint32_t slot, uint32_t entry);
  bool IsSeen(const Stripe& stripe, uint32_t slot) const {
    return stripe.seen[slot / chunk_rows_] >> slot % chunk_rows_ & 1;
  }
  absl::Status TakeSlot(Stripe* stripe, uint32_t* slot);
  absl::Status AddChunk(Stripe* stripe);
  absl::Status MakeRoom(uint32_t number);
  void Retire(uint32_t stripe, uint32_t slot);
  void Unlink(uint32_t number, std::atomic<uint32_t>* entry);
  // Calls `each` with every entry that holds a row.
  void ForEach(const std::function<void(uint32_t stripe, std::atomic<uint32_t>* entry)>& each);
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  absl::Status Full() const;

  const RowCoder coder_;
  const uint32_t stride_;
  const uint32_t chunk_rows_;
  ServedMemory* const memory_;
  RowChangeWatcher* watcher_ = nullptr;
  mutable ReadEpochs epochs_;
  std::array<Stripe, kStripes> stripes_;
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> bytes_{0};
  uint64_t indexes_ = 0;                            // that were made
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;  // out of which chunks are cut
  uint64_t block_left_ = 0;
  std::deque<RetiredSlot> retired_;
  std::deque<RetiredArray> retired_arrays_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_SERVED_ROWS_H_
