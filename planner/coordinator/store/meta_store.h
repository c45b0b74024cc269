// The metadata store: revisions, compare-and-set transactions, leases, watch. Modelled on etcd v3
// (KV, Lease, Watch only), so that an etcd backend fits behind it unchanged. Safety rests on Txn
// alone; reads, watches and leases are for liveness (reference page, section 3.9).
//
// Thread-safe. Keys and values are bytes; keys sort bytewise.
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

using LeaseId = uint64_t;  // 0: no lease

struct KeyValue {
  std::string key;
  std::string value;
  uint64_t create_revision = 0;
  uint64_t mod_revision = 0;
  LeaseId lease = 0;
};

struct Compare {
  enum class Target { kCreateRevision, kModRevision };
  std::string key;
  Target target = Target::kModRevision;
  uint64_t equals = 0;  // 0: the key does not exist
};

struct Op {
  enum class Kind { kPut, kDelete };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
  LeaseId lease = 0;
};

struct TxnResult {
  bool succeeded = false;  // all compares held; else nothing was written
  uint64_t revision = 0;   // of the store after the transaction
};

struct WatchEvent {
  Op::Kind kind = Op::Kind::kPut;
  KeyValue kv;  // of a delete: key and mod_revision
};

class MetaStore {
 public:
  virtual ~MetaStore() = default;

  struct RangeResult {
    uint64_t revision = 0;
    std::vector<KeyValue> kvs;  // sorted by key
  };
  // Keys in [first, limit); limit "" means the single key `first`.
  virtual absl::StatusOr<RangeResult> Range(const std::string& first, const std::string& limit) = 0;
  // Atomic and durable when it returns. At most kTxnOpsMax operations.
  virtual absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                        const std::vector<Op>& ops) = 0;

  // A lease holds for `ttl` after the grant or the last keep-alive; when it ends its keys are
  // deleted.
  virtual absl::StatusOr<LeaseId> GrantLease(absl::Duration ttl) = 0;
  virtual absl::Status KeepAlive(LeaseId lease) = 0;  // NotFound: it ended
  virtual absl::Status RevokeLease(LeaseId lease) = 0;

  // Calls `on_events` for every change of a key with `prefix` after `after_revision`, in revision
  // order, whole transactions at a time, from one thread. OutOfRange when that revision was
  // compacted away: read the range again. A call without events says that the watch fell behind
  // what the store keeps and has ended: read the range and watch anew. The watch ends when the
  // result is destroyed (not from within `on_events`); no call is under way after that.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  using OnEvents = absl::AnyInvocable<void(const std::vector<WatchEvent>& events)>;
  virtual absl::StatusOr<std::unique_ptr<Watch>> WatchPrefix(const std::string& prefix,
                                                             uint64_t after_revision,
                                                             OnEvents on_events) = 0;

  static constexpr int kTxnOpsMax = 128;  // etcd's default
};

// The first key after all keys with `prefix`.
std::string PrefixLimit(const std::string& prefix);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
