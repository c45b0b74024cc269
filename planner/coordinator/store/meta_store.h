// The metadata store: revisions and compare-and-set transactions, as the KV service of etcd v3 has
// them; one implementation is embedded, one calls etcd. Safety rests on Txn alone; a read may be
// stale by the time it is used.
//
// Thread-safe. Keys and values are bytes; keys sort bytewise.
#ifndef HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
#define HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

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
  // Atomic, and durable when it returns. InvalidArgument: CheckTransaction refuses it. After any
  // other error the outcome is unknown until a read shows it.
  virtual absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                        const std::vector<Op>& ops) = 0;

  // Within etcd's defaults: 128 operations, and 1.5 MiB with all that surrounds keys and values.
  static constexpr size_t kTxnOpsMax = 128;  // and as many compares
  static constexpr size_t kTxnBytesMax = 1'400'000;
  static constexpr size_t kKeyBytesMax = 1024;
  static constexpr size_t kValueBytesMax = 1 << 20;
};

// What a transaction counts towards MetaStore::kTxnBytesMax.
size_t TransactionBytes(const Compare& compare);
size_t TransactionBytes(const Op& op);

// InvalidArgument: too many or too large operations, or a key named twice.
absl::Status CheckTransaction(const std::vector<Compare>& compares, const std::vector<Op>& ops);

// Those of the keys that there are, each as of another moment; the revision is that of the last.
absl::StatusOr<MetaStore::RangeResult> ReadKeys(absl::Span<const char* const> keys,
                                                MetaStore* store);

// The first key after all keys with `prefix`.
std::string PrefixLimit(const std::string& prefix);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STORE_META_STORE_H_
