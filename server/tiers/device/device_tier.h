// The rows that all shards of a server keep in the memory of one device, and the one executor that
// works for them. Jobs wait in one queue; jobs that are alike run together, as one message of many
// tables (docs/device.md). While the device runs one message, the host hands out the answers of the
// message before and packs the next. device_tier.cc holds the queue and runs messages,
// device_tier_messages.cc composes them.
//
// Thread-safe. Jobs of one table run in the order of Submit, and their `done` in that order, on the
// job's executor. Bounds: a shard has at most one job in flight that changes rows; pulls are
// bounded by kPullJobsMax; a message by the memory that Open has taken for it, and larger jobs run
// in pieces. A device failure is permanent: every job then ends with DeviceLostError.
#ifndef HOTBED_SERVER_TIERS_DEVICE_DEVICE_TIER_H_
#define HOTBED_SERVER_TIERS_DEVICE_DEVICE_TIER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/status_numbers.h"
#include "common/threads/executor.h"
#include "device/device.h"
#include "device/device_rows.h"
#include "server/tiers/api/answer_memory.h"
#include "server/tiers/api/tiered_store.h"
#include "server/tiers/device/device_pinner.h"
#include "server/tiers/device/device_staging.h"
#include "server/tiers/spill/io_gate.h"
#include "server/tiers/spill/io_queue.h"

namespace hotbed {

// A shard's request to the device. Everything it points to stays valid until `done`, or until the
// gate is closed, which drops the job. Only `answer` is held longer, while the device copies rows
// into it. `count` is at least 1, but for kCall and kPooled; kUpdate: `type` is that of the
// gradients; kPooled: FitsPooled() holds.
struct DeviceJob : RowReads {
  enum class Kind : uint8_t {
    kPull,    // reads rows and flags; lists missing rows
    kPooled,  // pools bags whose rows are all on the device; lists the others
    kProbe,   // lists missing rows
    kUpdate,  // one optimizer step of rows that are all on the device
    kCall,    // runs `call`, in a message of its own
  };
  Kind kind = Kind::kCall;
  uint32_t table = 0;
  uint32_t dim = 0;
  const uint8_t* const* gradients = nullptr;
  UpdateScalars scalars;
  bool assign = false;
  std::function<device::Status(device::DeviceRows*)> call;

  std::shared_ptr<IoGate> gate;  // null: never dropped
  Executor* executor = nullptr;  // null: `done` does not run
  absl::AnyInvocable<void()> done;

  // Out.
  std::vector<uint32_t> missing;  // numbers of ids, in order; kPooled: of bags
  absl::Status status;

  uint32_t taken = 0;  // ids that are done or in flight; for DeviceTier alone
};

class DeviceTier {
 public:
  static constexpr uint32_t kPullJobsMax = 1u << 16;
  // The device copies this many adjacent bytes of rows straight into an answer; fewer go through
  // staging memory. Starting a copy on a GPU takes about 2 microseconds, in which memcpy moves
  // about as many bytes.
  static constexpr uint64_t kDirectBytesMin = 16 << 10;

  // `device_bytes`: device memory for rows and messages; 0: nine tenths of the free memory.
  // `host_bytes_max`: about the most that the host's side may take. ResourceExhausted: less is
  // free; DeviceLostError: the device fails.
  static absl::StatusOr<std::unique_ptr<DeviceTier>> Open(std::unique_ptr<device::Device> device,
                                                          uint64_t device_bytes,
                                                          uint64_t host_bytes_max);
  // With given limits of messages; for tests.
  static absl::StatusOr<std::unique_ptr<DeviceTier>> Open(std::unique_ptr<device::Device> device,
                                                          const device::RowsOptions& options);
  ~DeviceTier();
  DeviceTier(const DeviceTier&) = delete;

  // To be called before the first Submit: jobs run as tasks of `io`, one at a time and each of at
  // most `messages_of_task` messages, instead of on a thread of the tier's own. `io` outlives the
  // tier.
  void RunOn(IoQueue* io, uint32_t messages_of_task = 1) {
    io_ = io;
    messages_of_task_ = messages_of_task;
  }
  // For tests, while nothing is queued: instead of kDirectBytesMin.
  void SetDirectBytesMin(uint64_t bytes) { direct_bytes_min_ = bytes; }
  void Submit(std::shared_ptr<DeviceJob> job);
  // Whether one message has room for the job's bags; Submit takes no others.
  bool FitsPooled(const DeviceJob& job) const;
  // False: kPullJobsMax pulls wait.
  bool HasRoomForPull() const {
    return counters_.pulls_waiting.load(std::memory_order_relaxed) < kPullJobsMax;
  }

  // The error of a device that has failed; OK while it works.
  absl::Status error() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string name() const { return name_; }
  uint64_t bytes_limit() const { return options_.device_bytes; }
  // Device memory for the tables of all shards.
  uint64_t slab_bytes() const { return slab_bytes_; }
  // Pinned memory of the host.
  uint64_t host_bytes() const { return rows_->staging_bytes() + staging_.bytes(); }
  const device::RowsOptions& options() const { return options_; }
  // Pins memory of answers for this device, and keeps the device: it may outlive the tier.
  std::shared_ptr<MemoryPinner> pinner() const { return pinner_; }
  void AddNumbers(StatusNumbers* numbers) const;

 private:
  // On the tier's own thread.
  static constexpr uint32_t kMessagesOfTask = 64;

  // A part of a job, in one message.
  struct Piece {
    std::shared_ptr<DeviceJob> job;
    uint32_t first = 0;  // of the job's ids
    uint32_t count = 0;
    bool is_last = true;     // of the job's
    bool is_open = true;     // its shard was there when the message began
    uint32_t at = 0;         // of the message's ids
    uint32_t bags_at = 0;    // of the message's bags
    uint64_t rows_at = 0;    // of the message's rows
    bool is_direct = false;  // its rows go straight into the answer
    HeldAnswer held;         // that answer, from before the copy until after it

    uint64_t row_bytes() const;
    uint8_t* to() const;  // of the job's rows
  };
  struct Message {
    std::vector<Piece> pieces;
    uint32_t flight = 0;  // of DeviceRows, if it is started
    bool is_started = false;
    device::Status status;
    std::vector<uint32_t> missing;

    DeviceJob::Kind kind() const { return pieces.front().job->kind; }
  };
  // Arrays of the message being started, kept for their memory.
  struct Scratch {
    std::vector<device::Segment> segments, bag_segments;
    std::vector<device::RowsOut> parts;
    std::vector<uint32_t> arg_max;  // of bags
  };
  struct Counters {
    std::atomic<uint64_t> bytes{0};  // device memory in use
    // Answered rows, copied straight into the answer by the device, or from staging memory by the
    // host.
    std::atomic<uint64_t> direct_bytes{0};
    std::atomic<uint64_t> copied_bytes{0};
    std::atomic<uint32_t> pulls_waiting{0};
  };

  DeviceTier(std::shared_ptr<device::Device> device, const device::RowsOptions& options);
  absl::Status TakeMemory();
  void Drain();
  void Start(Message* message);
  void End(Message* message);
  template <typename F>
  static void Inside(Piece* piece, F f);
  device::Status StartTogether(Message* message);
  device::Status RunPooled(Message* message);

  // device_tier_messages.cc
  Message NextMessage() ABSL_LOCKS_EXCLUDED(mu_);
  bool AddPiece(const std::shared_ptr<DeviceJob>& job, Message* message, uint32_t* dim_max) const;
  bool AddPooled(const std::shared_ptr<DeviceJob>& job, Message* message) const;
  void Pack(const Piece& piece, const DeviceStaging::Flight& staging) const;
  void PackBags(const Piece& piece) const;
  static void HoldAnswer(Piece* piece);
  static bool Follows(const Piece& later, const Piece& earlier);
  void PlaceRows(std::vector<Piece>* pieces, uint8_t* staged);
  void HandOut(const Piece& piece, const Message& message);
  void HandOutBags(const Piece& piece, const Message& message);
  void CopyRows(const Piece& piece, const uint8_t* staged);

  absl::Status StatusOf(const device::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  static void Finish(const std::shared_ptr<DeviceJob>& job);

  const std::shared_ptr<device::Device> device_;
  const std::shared_ptr<DevicePinner> pinner_;
  const device::RowsOptions options_;
  const std::string name_;
  uint64_t slab_bytes_ = 0;
  DeviceStaging staging_;
  std::unique_ptr<device::DeviceRows> rows_;
  Scratch scratch_;
  uint32_t next_flight_ = 0;
  uint64_t direct_bytes_min_ = kDirectBytesMin;

  Counters counters_;
  std::atomic<bool> failed_{false};
  std::unique_ptr<IoQueue> own_io_;
  IoQueue* io_ = nullptr;
  uint32_t messages_of_task_ = kMessagesOfTask;
  mutable absl::Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<DeviceJob>> queue_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_DEVICE_DEVICE_TIER_H_
