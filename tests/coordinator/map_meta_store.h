// The dumb twin of a metadata store: ranges and transactions over a std::map, nothing else.
#ifndef HOTBED_TESTS_COORDINATOR_MAP_META_STORE_H_
#define HOTBED_TESTS_COORDINATOR_MAP_META_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "planner/coordinator/store/meta_store.h"

namespace hotbed {

struct MapMetaStore {
  uint64_t revision = 1;
  std::map<std::string, KeyValue> keys;

  MetaStore::RangeResult Range(const std::string& first, const std::string& limit) const {
    MetaStore::RangeResult result;
    result.revision = revision;
    for (const auto& [key, kv] : keys) {
      if (limit.empty() ? key == first : key >= first && key < limit) result.kvs.push_back(kv);
    }
    return result;
  }

  TxnResult Txn(const std::vector<Compare>& compares, const std::vector<Op>& ops) {
    for (const Compare& c : compares) {
      const uint64_t is = keys.count(c.key) > 0 ? keys[c.key].mod_revision : 0;
      if (is != c.mod_revision) return {false, revision};
    }
    bool changed = false;
    for (const Op& op : ops) {
      if (op.kind == Op::Kind::kPut) {
        keys[op.key] = {op.key, op.value, revision + 1};
        changed = true;
      } else {
        changed |= keys.erase(op.key) > 0;
      }
    }
    if (changed) ++revision;
    return {true, revision};
  }
};

// The twin behind the interface of a store.
class TwinStore : public MetaStore {
 public:
  explicit TwinStore(MapMetaStore* twin) : twin_(twin) {}
  absl::StatusOr<RangeResult> Range(const std::string& first, const std::string& limit) override {
    return twin_->Range(first, limit);
  }
  absl::StatusOr<TxnResult> Txn(const std::vector<Compare>& compares,
                                const std::vector<Op>& ops) override {
    if (absl::Status s = CheckTransaction(compares, ops); !s.ok()) return s;
    return twin_->Txn(compares, ops);
  }

 private:
  MapMetaStore* const twin_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_MAP_META_STORE_H_
