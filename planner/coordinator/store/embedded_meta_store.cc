#include "planner/coordinator/store/embedded_meta_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// Keys in the KvStore: the first letter says which kind of entry it is.
constexpr char kVersionKey[] = "v";
constexpr char kRevisionKey[] = "r";
constexpr char kEntryPrefix = 'k';  // + key -> revision, value
constexpr char kFormatVersion[] = "hotbed-meta-3";
constexpr size_t kEntryHeaderBytes = 8;

std::string Encode64(uint64_t v) {
  std::string out(8, '\0');
  StoreLittle(out.data(), v);
  return out;
}

std::string EntryKey(absl::string_view key) {
  return absl::StrCat(absl::string_view(&kEntryPrefix, 1), key);
}

std::string EncodeEntry(const KeyValue& kv) {
  return absl::StrCat(Encode64(kv.mod_revision), kv.value);
}

absl::Status DamagedEntry(absl::string_view key, absl::string_view value) {
  return absl::DataLossError(absl::StrCat("metadata store: entry \"", absl::CEscape(key),
                                          "\" cannot be read: ", value.size(),
                                          " bytes; restore the coordinator's data directory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedMetaStore>> EmbeddedMetaStore::Open(
    std::unique_ptr<KvStore> kv) {
  absl::StatusOr<std::string> version = kv->Get(kVersionKey);
  if (absl::IsNotFound(version.status())) {
    std::unique_ptr<KvBatch> batch = kv->NewBatch();
    batch->Put(kVersionKey, kFormatVersion);
    HOTBED_RETURN_IF_ERROR(kv->Write(batch.get()));
  } else if (!version.ok()) {
    return version.status();
  } else if (*version != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("metadata store has format \"", absl::CEscape(*version),
                     "\", this program reads \"", kFormatVersion, "\""));
  }
  std::unique_ptr<EmbeddedMetaStore> store(new EmbeddedMetaStore(std::move(kv)));
  absl::MutexLock lock(&store->mu_);
  HOTBED_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status EmbeddedMetaStore::Load() {
  keys_.clear();
  revision_ = 1;
  absl::Status bad;
  HOTBED_RETURN_IF_ERROR(kv_->Scan("", "\xff", [&](absl::string_view key, absl::string_view value) {
    mu_.AssertHeld();
    bad = LoadEntry(key, value);
    return bad.ok();
  }));
  return bad;
}

absl::Status EmbeddedMetaStore::LoadEntry(absl::string_view key, absl::string_view value) {
  if (key == kVersionKey) return absl::OkStatus();
  if (key == kRevisionKey) {
    if (value.size() != 8) return DamagedEntry(key, value);
    revision_ = LoadLittle<uint64_t>(value.data());
    return absl::OkStatus();
  }
  if (key[0] != kEntryPrefix || value.size() < kEntryHeaderBytes) return DamagedEntry(key, value);
  KeyValue kv;
  kv.key = std::string(key.substr(1));
  kv.mod_revision = LoadLittle<uint64_t>(value.data());
  kv.value = std::string(value.substr(kEntryHeaderBytes));
  std::string name = kv.key;
  keys_.insert_or_assign(std::move(name), std::move(kv));
  return absl::OkStatus();
}

absl::Status EmbeddedMetaStore::RecoverIfNeeded() {
  if (!recover_) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(kv_->TryResume());
  HOTBED_RETURN_IF_ERROR(Load());
  recover_ = false;
  return absl::OkStatus();
}

absl::StatusOr<MetaStore::RangeResult> EmbeddedMetaStore::Range(const std::string& first,
                                                                const std::string& limit) {
  absl::MutexLock lock(&mu_);
  // A read after a failed write must not show what the disk does not hold.
  HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  RangeResult result;
  result.revision = revision_;
  if (limit.empty()) {
    auto it = keys_.find(first);
    if (it != keys_.end()) result.kvs.push_back(it->second);
    return result;
  }
  for (auto it = keys_.lower_bound(first); it != keys_.end() && it->first < limit; ++it) {
    result.kvs.push_back(it->second);
  }
  return result;
}

bool EmbeddedMetaStore::Holds(const Compare& compare) const {
  auto it = keys_.find(compare.key);
  return compare.mod_revision == (it == keys_.end() ? 0 : it->second.mod_revision);
}

absl::StatusOr<TxnResult> EmbeddedMetaStore::Txn(const std::vector<Compare>& compares,
                                                 const std::vector<Op>& ops) {
  HOTBED_RETURN_IF_ERROR(CheckTransaction(compares, ops));
  absl::MutexLock lock(&mu_);
  HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  TxnResult result;
  result.revision = revision_;
  for (const Compare& compare : compares) {
    if (!Holds(compare)) return result;
  }
  result.succeeded = true;
  std::vector<KeyValue> puts;
  std::vector<std::string> deletes;
  std::unique_ptr<KvBatch> batch = kv_->NewBatch();
  for (const Op& op : ops) {
    if (op.kind == Op::Kind::kPut) {
      puts.push_back({op.key, op.value, revision_ + 1});
      batch->Put(EntryKey(op.key), EncodeEntry(puts.back()));
    } else if (keys_.contains(op.key)) {
      deletes.push_back(op.key);
      batch->Delete(EntryKey(op.key));
    }
  }
  if (puts.empty() && deletes.empty()) return result;  // the revision stays as it is
  batch->Put(kRevisionKey, Encode64(revision_ + 1));
  if (absl::Status s = kv_->Write(batch.get()); !s.ok()) {
    recover_ = true;
    return s;
  }
  for (const std::string& key : deletes) keys_.erase(key);
  for (KeyValue& kv : puts) {
    std::string name = kv.key;
    keys_.insert_or_assign(std::move(name), std::move(kv));
  }
  result.revision = ++revision_;
  return result;
}

}  // namespace hotbed
