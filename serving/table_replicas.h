// The tables that this serving server has, as the coordinator orders. Thread-safe.
#ifndef HOTBED_SERVING_TABLE_REPLICAS_H_
#define HOTBED_SERVING_TABLE_REPLICAS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
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
  // Null: it is not served here. While a table is cut into other parts there may be copies of two
  // cuts; the first two find the one that readers are told of, or the other one.
  std::shared_ptr<const TableReplica> Find(uint32_t table) const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const TableReplica> Find(const std::string& name) const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const TableReplica> Find(uint32_t table, const ServedPart& part) const
      ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<const TableReplica>> All() const ABSL_LOCKS_EXCLUDED(mu_);
  // Without copies of other cuts than those that readers are told of.
  std::vector<std::shared_ptr<const TableReplica>> Present() const ABSL_LOCKS_EXCLUDED(mu_);
  OrderedVersions Versions() const ABSL_LOCKS_EXCLUDED(mu_);
  const ServedMemory& memory() const { return memory_; }
  const Clock& clock() const { return *clock_; }
  RelayMemory* relay_memory() { return &relay_memory_; }
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The memory of changes that are kept for other serving servers, beside `bytes_max` of rows.
  static uint64_t RelayBytes(uint64_t bytes_max) {
    return std::clamp<uint64_t>(bytes_max / 32, 1 << 20, 64 << 20);
  }
  // A table, and the part of it.
  struct CopyKey {
    uint32_t table = 0;
    ServedPart part;
    friend bool operator==(const CopyKey&, const CopyKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const CopyKey& key) {
      return H::combine(std::move(h), key.table, key.part.part, key.part.parts);
    }
  };
  using Copies = absl::flat_hash_map<CopyKey, std::shared_ptr<TableReplica>>;
  static std::vector<v1::OrderedCopy> CopiesOf(const v1::ServingOrders& orders);
  template <typename Is>
  std::shared_ptr<const TableReplica> FindFirst(Is is) const ABSL_LOCKS_EXCLUDED(mu_);
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
  Copies copies_ ABSL_GUARDED_BY(mu_);
  OrderedVersions ordered_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  PlaceFinder places_{FileSystem::Real()};
  std::thread versions_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_TABLE_REPLICAS_H_
