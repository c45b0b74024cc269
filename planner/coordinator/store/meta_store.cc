#include "planner/coordinator/store/meta_store.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<MetaStore::RangeResult> ReadKeys(absl::Span<const char* const> keys,
                                                MetaStore* store) {
  MetaStore::RangeResult read;
  for (const char* key : keys) {
    HOTBED_ASSIGN_OR_RETURN(MetaStore::RangeResult one, store->Range(key, ""));
    read.revision = one.revision;
    for (KeyValue& kv : one.kvs) read.kvs.push_back(std::move(kv));
  }
  return read;
}

std::string PrefixLimit(const std::string& prefix) {
  std::string limit = prefix;
  while (!limit.empty() && static_cast<unsigned char>(limit.back()) == 0xff) limit.pop_back();
  // No key sorts after every key that begins with 0xff bytes only; this one is longer than any real
  // key of that kind.
  if (limit.empty()) return std::string(64, '\xff');
  limit.back() = static_cast<char>(static_cast<unsigned char>(limit.back()) + 1);
  return limit;
}

size_t TransactionBytes(const Compare& compare) { return compare.key.size(); }

size_t TransactionBytes(const Op& op) { return op.key.size() + op.value.size(); }

absl::Status CheckTransaction(const std::vector<Compare>& compares, const std::vector<Op>& ops) {
  const size_t most = std::max(compares.size(), ops.size());
  if (most > MetaStore::kTxnOpsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata transaction of ", most, " operations, the limit is ", MetaStore::kTxnOpsMax));
  }
  size_t bytes = 0;
  for (const Compare& compare : compares) bytes += TransactionBytes(compare);
  std::set<absl::string_view> seen;
  for (const Op& op : ops) {
    bytes += TransactionBytes(op);
    if (op.key.empty() || op.key.size() > MetaStore::kKeyBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata key of ", op.key.size(), " bytes, allowed: 1..",
                       MetaStore::kKeyBytesMax, ": \"", absl::CEscape(op.key.substr(0, 80)), "\""));
    }
    if (op.value.size() > MetaStore::kValueBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata value of \"", absl::CEscape(op.key), "\" has ", op.value.size(),
                       " bytes, the limit is ", MetaStore::kValueBytesMax));
    }
    if (!seen.insert(op.key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata transaction names key \"", absl::CEscape(op.key), "\" twice"));
    }
  }
  if (bytes > MetaStore::kTxnBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("metadata transaction of ", bytes,
                                                   " bytes of keys and values, the limit is ",
                                                   MetaStore::kTxnBytesMax));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
