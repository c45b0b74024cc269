// The metadata store: revisions and compare-and-set transactions. Modelled on the KV service of
// etcd v3, so that an etcd backend fits behind it unchanged. Safety rests on Txn alone; a read may
// be stale by the time it is used.
//
// Thread-safe. Keys and values are bytes; keys sort bytewise.
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hotbed {

struct KeyValue {
  std::string key;
  std::string value;
  uint64_t mod_revision = 0;
};

struct Compare {
  std::string key;
  uint64_t mod_revision = 0;  // 0: the key does not exist
};

struct Op {
  enum class Kind { kPut, kDelete };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
};

struct TxnResult {
  bool succeeded = false;  // every compare held; otherwise nothing was written
  uint64_t revision = 0;   // of the store after the transaction
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
  // Atomic, and durable when it returns. At most kTxnOpsMax operations. InvalidArgument: too many
  // or too large operations, or a key named twice. After any other error the outcome is unknown
  // until a read shows it.
  virtual absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                        const std::vector<Op>& ops) = 0;

  static constexpr int kTxnOpsMax = 128;  // etcd's default
};

// The first key after all keys with `prefix`.
std::string PrefixLimit(const std::string& prefix);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
