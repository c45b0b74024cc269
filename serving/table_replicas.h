// The tables that this serving server has, as the coordinator orders. Thread-safe.
#ifndef HOTBED_SERVING_TABLE_REPLICAS_H_
#define HOTBED_SERVING_TABLE_REPLICAS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/files/file_system.h"
#include "places/place_finder.h"
#include "serving/table_replica.h"

namespace hotbed {

// The versions that tables of this server are to have, as they were ordered together.
struct OrderedVersions {
  std::vector<v1::ServedVersion> versions;  // by number
  std::vector<uint64_t> current;            // numbers, of each model

  bool IsCurrent(uint64_t number) const {
    return std::find(current.begin(), current.end(), number) != current.end();
  }
};

class TableReplicas {
 public:
  // `clock` outlives it.
  TableReplicas(const TableReplica::Source& source, uint64_t bytes_max, const Clock* clock)
      : source_(source),
        memory_(bytes_max),
        relay_memory_(RelayBytes(bytes_max), source.run),
        clock_(clock),
        versions_([this] { TakeUpVersions(); }) {}
  ~TableReplicas() { Stop(); }

  // Begins to follow the ordered tables and to take up their versions, and drops all others. One
  // thread calls it.
  // `cluster`: whose orders they are.
  void Obey(const v1::ServingOrders& orders, const std::string& cluster) ABSL_LOCKS_EXCLUDED(mu_);
  // Null: it is not served here.
  std::shared_ptr<const TableReplica> Find(uint32_t table) const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const TableReplica> Find(const std::string& name) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<const TableReplica>> All() const ABSL_LOCKS_EXCLUDED(mu_);
  OrderedVersions Versions() const ABSL_LOCKS_EXCLUDED(mu_);
  const ServedMemory& memory() const { return memory_; }
  RelayMemory* relay_memory() { return &relay_memory_; }
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The memory of changes that are kept for other serving servers, beside `bytes_max` of rows.
  static uint64_t RelayBytes(uint64_t bytes_max) {
    return std::clamp<uint64_t>(bytes_max / 32, 1 << 20, 64 << 20);
  }
  void TakeUpVersions() ABSL_LOCKS_EXCLUDED(mu_);
  bool stops() const ABSL_LOCKS_EXCLUDED(mu_);
  // What an earlier process has left of tables that are not ordered any more.
  void DropOtherFolders() const ABSL_LOCKS_EXCLUDED(mu_);

  const TableReplica::Source source_;
  ServedMemory memory_;
  RelayMemory relay_memory_;
  const Clock* const clock_;
  bool cleaned_ = false;  // by the thread that calls Obey
  mutable absl::Mutex mu_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<TableReplica>> tables_ ABSL_GUARDED_BY(mu_);
  OrderedVersions ordered_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  PlaceFinder places_{FileSystem::Real()};
  std::thread versions_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_TABLE_REPLICAS_H_
