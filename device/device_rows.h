// The rows of many tables on one device. Owns the device's memory, knows the tables, and turns a
// message into works.
//
// All memory is taken once, at Open. An update of rows that may be missing is three calls, between
// which the caller lets no other row of these tables come or go:
//
//   Probe    says which rows are missing
//   (the caller updates the missing rows in the tier below)
//   Update   sums gradients and steps the rows that are here
//
// Insert brings rows in and hands out the rows that had to make room.
//
// Three sources: device_rows.cc has memory and tables, device_rows_read.cc reads and messages in
// flight, device_rows_update.cc the calls that change rows.
//
// Costs: one wait per call when all rows are here; docs/device.md counts launches and bytes. Every
// call except the sizes of tables may fail with the device's error, and then all later calls do.
// Confined to the device's executor.
//
// Pulls, probes and updates are started and finished later. Each such message takes one of kFlights
// rooms, so that one is copied while another runs. While a message is started, the only other call
// allowed is a start in the other room; any other is kTooLarge.
#ifndef HOTBED_DEVICE_DEVICE_ROWS_H_
#define HOTBED_DEVICE_DEVICE_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "device/byte_arena.h"
#include "device/device.h"
#include "device/table.h"

namespace hotbed {
namespace device {

constexpr uint32_t kFlights = 2;            // messages that may be in flight
constexpr uint32_t kCollectBuckets = 8192;  // whose bits Collect reads together: 1 MiB
constexpr uint32_t kIdsMax = 1u << 30;      // per message: sorts and units count in 32 bits

struct RowsOptions {
  uint64_t device_bytes = 0;         // taken as a whole: rows, index, and memory for messages
  uint32_t ids_max = 1u << 20;       // per message
  uint32_t segments_max = 1u << 16;  // per message
  uint32_t tables_max = 4096;
  uint64_t row_bytes_max = 256ull << 20;  // of a message's rows or gradients; taken kFlights times
  uint64_t move_bytes_max = 32ull << 20;  // of rows that move together; at least one of any table
};

// A message: `ids_count` ids, cut by segments (device/batch.h).
struct Batch {
  const Segment* segments = nullptr;
  uint32_t segment_count = 0;
  const uint64_t* ids = nullptr;
  uint32_t ids_count = 0;
};

// A part of a message's rows, and its destination.
struct RowsOut {
  uint64_t rows_at = 0;  // of the message's rows, as its segments place them
  uint64_t bytes = 0;
  uint8_t* to = nullptr;
};

struct PooledBatch {
  Batch ids;                          // the bags' ids; rows_at and type are ignored
  const Segment* bags = nullptr;      // segments of bags, one per segment of ids
  const uint32_t* offsets = nullptr;  // bags_count + 1
  uint32_t bags_count = 0;
  RowPooling pooling = RowPooling::kSum;
  bool mean = false;
  const float* weights = nullptr;  // one per id, or null
};

struct RowToInsert {
  uint32_t table = 0;
  uint64_t position = 0;
  const uint8_t* stored = nullptr;  // weights, then state; null: the row's first value
};

// A row that has left the device, or whose bytes were copied out.
struct MovedRow {
  uint32_t table = 0;
  uint64_t position = 0;
  std::vector<uint8_t> stored;
  bool dirty = true;  // the tier below does not have these values
};

struct RowsCounts {
  uint64_t inserted = 0;
  uint64_t evicted = 0;
  uint64_t refused = 0;  // rows for which all others of their bucket were held
};

class DeviceRows {
 public:
  // `device` outlives the rows.
  static Status Open(Device* device, const RowsOptions& options, std::unique_ptr<DeviceRows>* rows);
  ~DeviceRows();
  DeviceRows(const DeviceRows&) = delete;

  // Adds a table of `rows` rows, rounded up to whole buckets; kNoMemory if there is less memory.
  // Direct tables hold positions [first_position, first_position + rows).
  Status AddTable(const RowShape& shape, bool direct, uint64_t first_position, uint64_t rows,
                  uint32_t* table);
  // Removes the table and its rows.
  void RemoveTable(uint32_t table);
  uint32_t slots(uint32_t table) const { return tables_[table].slots; }
  uint64_t free_bytes() const { return arena_.free_bytes(); }
  uint64_t largest_free_bytes() const { return arena_.largest_free(); }
  // Bytes of host memory for rows that move.
  uint64_t staging_bytes() const { return staging_bytes_; }
  // Bytes that AddTable takes.
  static uint64_t TableBytes(const RowShape& shape, bool direct, uint64_t rows);

  // `incomplete`: numbers of the bags with rows that are not here; `rows` and `arg_max` (kMax: dim
  // u32 per bag, stride arg_stride; or null) hold no values for them.
  Status PullPooled(const PooledBatch& batch, uint8_t* rows, uint32_t* arg_max, uint32_t arg_stride,
                    std::vector<uint32_t>* incomplete);
  // The rows in parts, as StartPull has them.
  Status PullPooled(const PooledBatch& batch, const std::vector<RowsOut>& parts, uint32_t* arg_max,
                    uint32_t arg_stride, std::vector<uint32_t>* incomplete);

  // Pulls, probes and updates are started and finished later. `flight` is a room without a message.
  // Everything pointed to, except segments, stays valid until Finish, which waits for the message.
  // Messages are finished in the order of their start.
  //
  // Reads rows into `rows` as the segments place them. `flags`: one per id, or null. `missing` of
  // Finish: numbers of the ids whose rows are not here, in order; `rows` holds no values for them,
  // except in segments with absent_is_initial.
  Status StartPull(uint32_t flight, const Batch& batch, uint8_t* rows, uint8_t* flags);
  // Only these parts of the rows, each to its own destination: one copy per part, or one for parts
  // that are adjacent at both ends. Bytes that no part names are not copied.
  Status StartPull(uint32_t flight, const Batch& batch, const std::vector<RowsOut>& parts,
                   uint8_t* flags);
  // Which rows are missing; counts no visits.
  Status StartProbe(uint32_t flight, const Batch& batch);
  // One optimizer step of the rows that are here. `gradients`: rows as the segments place them; not
  // int8. `missing` of Finish: as of a pull.
  Status StartUpdate(uint32_t flight, const Batch& batch, const uint8_t* gradients);
  Status Finish(uint32_t flight, std::vector<uint32_t>* missing);

  // Brings rows in; a row that is here already stays as it is. `dirty`: the tier below does not
  // have these values. Adds to `evicted` the rows that made room, and to `refused` (or null) the
  // numbers of rows for which there was no room.
  Status Insert(const std::vector<RowToInsert>& rows, bool dirty, std::vector<MovedRow>* evicted,
                std::vector<uint32_t>* refused = nullptr);

  // The rows at `positions` leave, and their values with them; those that are not here are passed
  // over.
  Status Remove(uint32_t table, const std::vector<uint64_t>& positions);

  // Copies out dirty rows from slot *slot on, at most `wanted` and as many as move together, and
  // marks them clean. Sets *slot to where the next call continues, slots(table) at the end.
  Status Collect(uint32_t table, uint32_t* slot, uint32_t wanted, std::vector<MovedRow>* rows);

  const RowsCounts& counts() const { return counts_; }

 private:
  // A message's arrays in device memory, and those that the host writes or reads in staging memory.
  // A call that is started and finished at once uses the first flight.
  struct Flight {
    Segment* segments;
    uint64_t* ids;
    uint32_t* numbers;
    uint32_t* missing;  // bits, as ReadWork has them
    uint8_t* flags;
    uint8_t* rows;
    Segment* staged_segments;
    uint32_t* staged_numbers;
    uint32_t* staged_missing;
    bool started;
    uint32_t ids_count;
    uint64_t mark;
  };
  // Arrays in device memory, in addition to those of flights.
  struct Room {
    Table* tables;
    Segment* bag_segments;
    uint32_t* counted;
    uint32_t* sorted;
    uint32_t* order;
    uint32_t* offsets;
    float* weights;
    uint8_t* sums;
    uint8_t* sort;
    // For rows that move:
    uint64_t* positions;
    uint32_t* table_of;
    uint64_t* sources;
    uint32_t* buckets;
    Victim* victims;
    uint8_t* staged;
    uint8_t* victim_rows;  // and pooled reads' arg_max
  };
  // The same in staging memory, for data that the host writes.
  struct Staging {
    Segment* bag_segments;
    uint64_t* positions;
    uint32_t* table_of;
    uint64_t* sources;
    Victim* victims;
    uint8_t* rows;
    Bucket* buckets;
  };

  DeviceRows(Device* device, const RowsOptions& options)
      : device_(device), options_(options), arena_(0) {}
  Status TakeMemory();
  template <typename Take>
  void LayOutRoom(Take take);
  template <typename Take>
  void LayOutStaging(Take take);
  // The end of the batch's rows in *row_bytes.
  Status Check(const Batch& batch, bool update, uint64_t* row_bytes) const;
  Status CheckPooled(const PooledBatch& batch, uint64_t* row_bytes) const;
  Status CheckIdle() const;
  void SendTables();
  Status OpenFlight(uint32_t flight) const;
  void CloseFlight(uint32_t flight, uint32_t ids_count);
  static Status CheckParts(const std::vector<RowsOut>& parts, uint64_t row_bytes);
  void SendBatch(const Batch& batch, Flight* flight);
  enum class Finding { kVisit, kLook };
  void Find(const Batch& batch, const Flight& flight, Finding finding, uint8_t* rows,
            uint8_t* flags);
  static void ListMissing(const Flight& flight, uint32_t count, std::vector<uint32_t>* missing);
  bool LeavesRowsOf(const Batch& batch) const;
  // The step kernels of a message: at most kStepLaunches.
  struct StepLaunches {
    uint64_t own = 0;  // bits: a StepWork each
    bool any = false;  // and an AnyStepWork
  };
  static constexpr uint32_t kStepLaunches = 3;
  StepLaunches PlanSteps(const Batch& update) const;
  uint32_t SumStride(const Batch& batch) const;
  Status CheckSums(const Batch& batch) const;
  void RunUpdate(const Batch& update, const Flight& flight, const uint8_t* gradients,
                 uint64_t row_bytes);
  Status InsertPart(const std::vector<RowToInsert>& rows, uint32_t first, uint32_t count,
                    bool dirty, std::vector<MovedRow>* evicted, std::vector<uint32_t>* refused);
  uint64_t StageInserts(const std::vector<RowToInsert>& rows, uint32_t first, uint32_t count);
  void TakeVictims(uint32_t count, uint32_t stride, std::vector<MovedRow>* evicted);
  uint32_t PartOf(const std::vector<RowToInsert>& rows, uint32_t first, uint32_t* stride) const;
  Status RemovePart(const Table& table, const uint64_t* positions, uint32_t count);
  Status CopyRowsOut(uint32_t table, const std::vector<uint32_t>& slots,
                     std::vector<MovedRow>* rows);
  uint32_t StrideOf(uint32_t table) const;
  uint32_t NumberBits() const;
  uint32_t BucketBits() const;

  Device* const device_;
  const RowsOptions options_;
  uint8_t* memory_ = nullptr;
  uint8_t* staging_memory_ = nullptr;
  uint64_t staging_bytes_ = 0;
  uint64_t sum_bytes_ = 0;
  uint64_t slabs_at_ = 0;  // offset in memory_ of the arena's bytes
  ByteArena arena_;
  Flight flights_[kFlights] = {};
  Room room_ = {};
  Staging staging_ = {};
  std::vector<Table> tables_;      // as on the device; 0 slots: no table
  std::vector<uint64_t> slab_of_;  // offset of each table in the arena
  ByteArena numbers_{uint64_t{kRowsMax} / ByteArena::kUnit * ByteArena::kUnit};
  RowsCounts counts_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_DEVICE_ROWS_H_
