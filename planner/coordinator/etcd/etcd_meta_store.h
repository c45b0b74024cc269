// The metadata store in an etcd cluster, so that several coordinators can share it.
//
// Nothing is kept here. Large ranges are read in pages of one revision. The history of keys is not
// needed, and dropped (history_compaction.h).
//
// Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_META_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/coordinator/etcd/etcd_client.h"
#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

class EtcdMetaStore : public MetaStore {
 public:
  static constexpr int64_t kPageKeys = 8192;

  // `client` must outlive it.
  explicit EtcdMetaStore(EtcdClient* client, int64_t page_keys = kPageKeys)
      : client_(client), page_keys_(page_keys) {}

  absl::StatusOr<RangeResult> Range(const std::string& first, const std::string& limit) override;
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                const std::vector<Op>& ops) override;

 private:
  // OutOfRange: the revision of the first page was compacted away before the last was read.
  absl::StatusOr<RangeResult> ReadPages(const std::string& first, const std::string& limit);
  std::string Full(const std::string& key) const { return client_->address().prefix + key; }

  EtcdClient* const client_;
  const int64_t page_keys_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_ETCD_ETCD_META_STORE_H_
