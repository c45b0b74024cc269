// A read copy of one table, or of a part of it: follows the table's changes (hotbed/changes.h) on a
// thread of its own, at the primaries or at another copy, and keeps its rows in memory
// (ServedRows).
//
// It answers once it has had all rows. From then on it keeps answering: while a source cannot be
// reached its age grows, and where a source has lost changes, the rows stay until all have come
// again. With a disk, all rows lie there as well, and it goes on from there after a restart.
// Rows on disk that turn out to be damaged are deleted, and all come again.
// Where the server's memory is used up it gives up versions; then rows that have no room lie on
// disk alone. Without a disk it gives up its rows and begins again later; but if no other copy can
// answer for it, it keeps them as they are, and grows old until there is room. Versions that were
// ordered are taken up from their files once it has had all rows: as the rows that differ, in
// memory, or whole, on disk, where the table has no room in memory.
// Thread-safe.
#ifndef HOTBED_SERVING_TABLE_REPLICA_H_
#define HOTBED_SERVING_TABLE_REPLICA_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/changes/follow_as.h"
#include "common/clock.h"
#include "hotbed/changes.h"
#include "places/place_finder.h"
#include "proto/served_part.h"
#include "proto/serving.pb.h"
#include "security/identity.h"
#include "serving/copy_relay.h"
#include "serving/kept_rows.h"
#include "serving/rows/rows_on_device.h"
#include "serving/rows/versioned_rows.h"
#include "serving/table_versions.h"

namespace hotbed {

class TableReplica {
 public:
  struct Source {
    std::string coordinators;  // HOST:PORT,...
    ClientIdentity identity;
    std::string server;   // the name of this one
    std::string disk;     // a folder for rows, of this server alone; empty: memory alone
    std::string cluster;  // whose tables they are
    uint64_t run = 0;     // random, of this process
    std::shared_ptr<ServedDevice> device = nullptr;  // null: there is none
  };
  // Has the part of the table that `served` gives to this server, or else all of it. `memory`,
  // `relays` and `clock` outlive it. `feeder` as CopyRelay::SetFeeder has it.
  TableReplica(const v1::ServedTable& served, const v1::TableSpec& spec, const Source& source,
               const std::string& feeder, ServedMemory* memory, RelayMemory* relays,
               const Clock* clock);
  ~TableReplica() { Stop(); }

  const std::string& name() const { return spec_.name(); }
  uint32_t table() const { return spec_.id(); }
  v1::ServedFormat format() const { return format_; }
  const ServedPart& part() const { return part_; }
  const ServedPlaces& places() const { return places_; }
  // Older rows are refused; 0: none are.
  uint64_t staleness_ms_max() const {
    return order_.staleness_ms_max.load(std::memory_order_relaxed);
  }
  // The cut of the table that the copy belongs to: the one that readers are told of, one that is to
  // follow it, or the one before.
  enum class Cut { kPresent, kComing, kLeaving };
  // As the coordinator orders, and may order otherwise later.
  struct Order {
    uint64_t staleness_ms_max = 0;
    Cut cut = Cut::kPresent;
    bool alone = false;  // no other copy of the part follows
  };
  void SetOrder(const Order& order) {
    order_.staleness_ms_max.store(order.staleness_ms_max, std::memory_order_relaxed);
    order_.cut.store(order.cut);
    order_.alone.store(order.alone);
  }
  Cut cut() const { return order_.cut.load(); }

  CopyRelay* relay() const { return relay_.get(); }

  bool ready() const { return as_of_ns_.load() != 0; }
  // All changes that were acknowledged longer ago are in the rows; infinite while it is not ready.
  absl::Duration Age() const;
  uint64_t AgeMs() const;                                                   // rounded up
  std::shared_ptr<const ServedRows> rows() const ABSL_LOCKS_EXCLUDED(mu_);  // in memory
  RowsView Latest() const ABSL_LOCKS_EXCLUDED(mu_);
  // Memory may have rows that the sources have no more: all come again, and those go then.
  bool ComesAgain() const { return comes_again_.load(); }
  // Memory has not all rows.
  bool OnDiskAlone() const ABSL_LOCKS_EXCLUDED(mu_);
  // The rows of a version; nothing if it is not held whole, and WhyNoVersion says why.
  std::optional<RowsView> Version(uint64_t number) const ABSL_LOCKS_EXCLUDED(mu_);
  std::string WhyNoVersion(uint64_t number) const { return versions_.WhyNot(number); }
  // From now on these, and no others.
  void OrderVersions(const std::vector<v1::ServedVersion>& versions,
                     std::vector<uint64_t> current) {
    versions_.Order(versions, std::move(current));
  }
  // Takes up one version, if one is due and this replica is ready; ends early when `stops` says so.
  // False: there was nothing to be done. One thread calls it.
  bool TakeUpNext(PlaceFinder* places, const std::function<bool()>& stops) ABSL_LOCKS_EXCLUDED(mu_);
  // A lookup asks for so many rows: whether the table is hot is decided by that.
  void NoteLookup(uint64_t rows) const { lookup_rows_.fetch_add(rows, std::memory_order_relaxed); }
  v1::ReplicaReport Report() const ABSL_LOCKS_EXCLUDED(mu_);
  // Rows that lookups found on the device.
  uint64_t DeviceHits() const ABSL_LOCKS_EXCLUDED(mu_);
  // `keeps_disk`: what is not on disk yet is written.
  void Stop(bool keeps_disk = true);
  // After Stop: the rows on disk go when nobody reads them any more.
  void DropDisk() ABSL_LOCKS_EXCLUDED(mu_);
  // The name of its folder in Source::disk.
  std::string folder() const;

 private:
  void Run();
  // Until Stop.
  void FollowAlways();
  // False after Stop.
  bool OpenDisk() ABSL_LOCKS_EXCLUDED(mu_);
  // Some row on disk is damaged: opens it again, which keeps the rows or begins without any. Memory
  // goes on answering if it has all rows.
  bool ReopenDisk() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenDiskOnce() ABSL_LOCKS_EXCLUDED(mu_);
  // Fills memory with rows of the disk.
  absl::Status Warm();
  // Gives rows that readers found on disk the places of others in memory; these go to the device.
  absl::Status Promote();
  // Brings rows to the device that readers missed there.
  absl::Status BringUp();
  // Null: there is no device.
  std::shared_ptr<RowsOnDevice> OnDevice() const ABSL_LOCKS_EXCLUDED(mu_);
  // The device has no rows of this copy from now on, until some are brought up.
  void ForgetDevice() ABSL_LOCKS_EXCLUDED(mu_);
  // The same, with `rows` as the copy's rows from the same moment on.
  void Replace(std::shared_ptr<VersionedRows> rows) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeUpBelow(const v1::ServedVersion& version, VersionedRows* rows, Place* place,
                           const std::function<bool()>& stops) ABSL_LOCKS_EXCLUDED(mu_);
  // Follows until an error.
  absl::Status FollowOnce();
  absl::Status Follow(CopyStream* stream);
  absl::Status Apply(const CopyChanges& changes, const ChangeStream& stream);
  // Changes that are taken now.
  struct Taken {
    const CopyChanges& changes;
    const std::vector<uint8_t> coded;  // rows of this copy's format
    const ChangePositions positions;   // behind them
  };
  absl::Status PutOnDisk(const Taken& taken, const VersionedRows& rows);
  absl::Status PutInMemory(const Taken& taken, size_t i, VersionedRows* rows);
  absl::Status ApplyInMemory(const Taken& taken, VersionedRows* rows);
  // The rows of `changes` in this copy's format.
  absl::StatusOr<std::vector<uint8_t>> Coded(const CopyChanges& changes, const RowCoder& coder);
  // All parts were told: rows of those that came again, but were not told again, are no more.
  absl::Status EndAgain(const ChangeStream& stream);
  void UnmarkAgain(VersionedRows* rows);
  absl::Status TakeUp(const v1::ServedVersion& version, VersionedRows* rows, PlaceFinder* places,
                      const std::function<bool()>& stops);
  // Without any row.
  std::shared_ptr<VersionedRows> NewRows() const;
  std::shared_ptr<VersionedRows> WritableRows() const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<DiskRows> Disk() const ABSL_LOCKS_EXCLUDED(mu_);
  // All of them wait, and return false after Stop: until a table that had no room may have some,
  // before a disk that was damaged is filled again, and for a while.
  bool PauseUntilRoom() ABSL_LOCKS_EXCLUDED(mu_);
  bool PauseAfterDamage() ABSL_LOCKS_EXCLUDED(mu_);
  bool Pause(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginAnew() ABSL_LOCKS_EXCLUDED(mu_);
  void SetTrouble(std::string trouble) ABSL_LOCKS_EXCLUDED(mu_);

  const v1::TableSpec spec_;
  const v1::ServedFormat format_;
  const ServedPart part_;
  const ServedPlaces places_;
  const Source source_;
  ServedMemory* const memory_;
  const Clock* const clock_;
  struct {
    std::atomic<uint64_t> staleness_ms_max{0};
    std::atomic<Cut> cut{Cut::kPresent};
    std::atomic<bool> alone{false};
  } order_;
  std::atomic<int64_t> as_of_ns_{0};  // 0: it has not had all rows yet
  mutable std::atomic<uint64_t> lookup_rows_{0};
  // Bytes of rows when the server's memory was used up; 0: it was not, or all rows came since.
  std::atomic<uint64_t> full_bytes_{0};
  std::atomic<bool> comes_again_{false};  // rows without a mark go once all parts were told
  // The thread's:
  std::vector<ChangedRange> again_;  // parts that come again, whose rows are marked still
  bool full_ = false;                // the server's memory is used up
  bool followed_ = false;            // a stream has begun before
  std::unique_ptr<KeptRows> kept_;   // null: no disk
  struct Failures {
    int full_pauses = 1;  // before it is tried again
    int damages = 0;      // of the disk, each within an hour of the one before
    int64_t damaged_ns = 0;
  } failures_;
  TableVersions versions_;
  const std::unique_ptr<CopyRelay> relay_;
  mutable absl::Mutex mu_;
  std::shared_ptr<VersionedRows> rows_ ABSL_GUARDED_BY(mu_);
  struct RowsElsewhere {
    std::shared_ptr<DiskRows> disk;        // null: none, or not open yet
    std::shared_ptr<RowsOnDevice> device;  // null: there is no device
    uint64_t device_hits = 0;              // of earlier ones
  } elsewhere_ ABSL_GUARDED_BY(mu_);
  std::string trouble_ ABSL_GUARDED_BY(mu_);
  struct {
    bool asked = false;
    bool keeps_disk = true;
  } stop_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_TABLE_REPLICA_H_
