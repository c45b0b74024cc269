// Rows of one copy in device memory, beside the copy's memory and disk: those that bags ask for,
// to be pooled there, and those that had to leave memory. Rows of fp32, fp16 and bf16 lie there as
// such, rows of codes as plain words. The device is a cache: a row there is in memory or on disk,
// too. So a device that fails costs speed and no row, and nothing is asked of it from then on.
//
// One thread writes, the one that follows the table; any thread reads. Reads wait for the device
// (server/tiers/device/device_tier.h), which answers many of them as one message.
//
// No reader sees a row go back:
//
//   - Rows that are read one by one are looked for in memory, then here, then on disk. Until the
//     writer changes a row here, readers find the old one here, and afterwards the new one. (A
//     reader that is slow between here and disk is the exception: docs/known_gaps.md.)
//   - A bag is taken from here only if no change was under way from before the device was asked
//     until it had answered (Change). Then all rows here are those of memory.
//
// So while a bag is computed here, its rows are the newest ones. A version's reader looks into the
// version's overlay afterwards, as versioned_rows.h demands.
#ifndef HOTBED_SERVING_ROWS_ROWS_ON_DEVICE_H_
#define HOTBED_SERVING_ROWS_ROWS_ON_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/threads/executor.h"
#include "device/table.h"
#include "server/tiers/device/heat_filter.h"
#include "serving/rows/row_coder.h"

namespace hotbed {

class DeviceTier;
struct DeviceJob;

// The device of a server, which its copies share. Thread-safe.
class ServedDevice {
 public:
  explicit ServedDevice(std::unique_ptr<DeviceTier> tier);
  ~ServedDevice();
  DeviceTier* tier() const { return tier_.get(); }

 private:
  friend class RowsOnDevice;
  const std::unique_ptr<DeviceTier> tier_;
  std::atomic<uint32_t> without_{0};  // copies that have no memory of it yet
};

class RowsOnDevice {
 public:
  RowsOnDevice(std::shared_ptr<ServedDevice> device, const RowCoder& coder);
  ~RowsOnDevice();
  RowsOnDevice(const RowsOnDevice&) = delete;
  RowsOnDevice& operator=(const RowsOnDevice&) = delete;

  // --- the writer
  // Gives the rows here the values that readers are to find (`rows`: one after another, as RowCoder
  // has them), and takes the deleted ones out. Then `in_memory` does so in memory; the disk must
  // have them before. Of an id that is there twice, the last row counts. If `in_memory` fails,
  // memory may have older rows than the device: the rows here are given up.
  absl::Status Change(absl::Span<const uint64_t> ids, const uint8_t* rows,
                      absl::Span<const uint64_t> deleted,
                      absl::FunctionRef<absl::Status()> in_memory);
  // Rows that readers missed here and that should come up; some of them, if they are many. No id
  // twice, and no rows that were here when the misses were looked at.
  std::vector<uint64_t> TakeWanted() ABSL_LOCKS_EXCLUDED(mu_);
  // Brings rows up, as memory or disk has them now; those that are here stay. An id may be there
  // twice. The first call takes memory for a copy of `rows_of_copy` rows, or as many as the copy's
  // share has room for.
  void BringUp(absl::Span<const uint64_t> ids, const uint8_t* rows, uint64_t rows_of_copy);
  // From now on readers find nothing here.
  void GiveUp() { given_up_.store(true); }

  // --- any thread
  // Whether bags can be pooled here: the rows are no codes.
  bool pools() const { return pools_; }
  // Calls `visit` for each of the ids whose row is here, with its place among them.
  void Read(absl::Span<const uint64_t> ids,
            absl::FunctionRef<void(size_t at, uint64_t id, const uint8_t* row)> visit) const
      ABSL_LOCKS_EXCLUDED(mu_);
  struct Bags {
    RowPooling pooling = RowPooling::kSum;
    absl::Span<const uint64_t> ids;
    absl::Span<const uint32_t> lengths;  // of the bags, which are all ids in order
    const float* weights = nullptr;      // one per id, for sums; or null
  };
  struct PooledBags {
    std::vector<float> rows;         // the coder's dim each
    std::vector<uint32_t> unpooled;  // ascending: bags with rows that are not here
  };
  // The bags of which all rows are here. Nothing: none is, or rows changed meanwhile.
  std::optional<PooledBags> Pool(const Bags& bags) const ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t rows() const { return rows_.load(std::memory_order_relaxed); }
  // Rows that were found here for readers.
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kNoTable = ~uint32_t{0};

  bool usable() const { return !given_up_.load() && table_.load() != kNoTable; }
  // A job of this table with these ids, which is a call of the device unless its kind is set.
  std::shared_ptr<DeviceJob> NewJob(absl::Span<const uint64_t> ids) const;
  // Waits for its end. An error is of the device: the rows here are given up.
  bool Run(std::shared_ptr<DeviceJob> job) const;
  // Numbers of the ids whose rows are here, or are not.
  std::optional<std::vector<uint32_t>> Probe(absl::Span<const uint64_t> ids, bool here) const;
  // Rows as the device stores them.
  std::vector<uint8_t> Padded(const uint8_t* rows, const std::vector<uint32_t>& which) const;
  void NoteMissed(absl::Span<const uint64_t> ids) const ABSL_LOCKS_EXCLUDED(mu_);
  bool MakeTable(uint64_t rows_of_copy);
  void BeginChanges(absl::Span<const uint64_t> ids, const uint8_t* rows,
                    absl::Span<const uint64_t> deleted);
  void Assign(absl::Span<const uint64_t> ids, const uint8_t* rows,
              const std::vector<uint32_t>& which);
  void Remove(absl::Span<const uint64_t> ids, const std::vector<uint32_t>& which);

  const std::shared_ptr<ServedDevice> device_;
  const uint32_t dim_;
  const uint32_t row_bytes_;
  const bool pools_;
  const device::RowShape shape_;
  const RowType type_;  // as which rows travel unchanged
  mutable InlineExecutor inline_;
  std::atomic<uint32_t> table_{kNoTable};
  mutable std::atomic<bool> given_up_{false};
  std::atomic<uint64_t> changes_{0};  // odd: one is under way
  std::atomic<uint64_t> rows_{0};
  mutable std::atomic<uint64_t> hits_{0};
  mutable absl::Mutex mu_;
  mutable std::vector<uint64_t> missed_ ABSL_GUARDED_BY(mu_);
  // The writer's:
  bool full_ = false;            // a row has had to make room
  uint64_t refusals_ = 0;        // of memory, one after another
  uint64_t calls_to_table_ = 0;  // of BringUp, before it is asked for again
  uint32_t slots_ = 0;
  HeatFilter heat_{0};
  std::vector<uint64_t> wanted_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_ROWS_ON_DEVICE_H_
