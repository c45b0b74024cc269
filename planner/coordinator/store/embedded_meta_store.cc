#include "planner/coordinator/store/embedded_meta_store.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/byte_order.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// Keys in the KvStore: one letter says what it is.
constexpr char kVersionKey[] = "v";
constexpr char kRevisionKey[] = "r";
constexpr char kNextLeaseKey[] = "n";
constexpr char kLeasePrefix = 'l';  // + lease id, big-endian -> TTL in nanoseconds
constexpr char kEntryPrefix = 'k';  // + key -> create revision, mod revision, lease, value
constexpr char kFormatVersion[] = "hotbed-meta-1";
constexpr size_t kEntryHeaderBytes = 24;

std::string Encode64(uint64_t v) {
  std::string out(8, '\0');
  StoreLittle(out.data(), v);
  return out;
}

std::string LeaseKey(LeaseId lease) {
  std::string key(9, kLeasePrefix);
  StoreBig64(key.data() + 1, lease);
  return key;
}

std::string EntryKey(absl::string_view key) {
  return absl::StrCat(absl::string_view(&kEntryPrefix, 1), key);
}

std::string EncodeEntry(const KeyValue& kv) {
  return absl::StrCat(Encode64(kv.create_revision), Encode64(kv.mod_revision), Encode64(kv.lease),
                      kv.value);
}

uint64_t EventBytes(const WatchEvent& e) { return e.kv.key.size() + e.kv.value.size() + 64; }

absl::Status Damaged(absl::string_view key, absl::string_view value) {
  return absl::DataLossError(absl::StrCat("metadata store: entry \"", absl::CEscape(key),
                                          "\" cannot be read: ", value.size(),
                                          " bytes; restore the coordinator's data directory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedMetaStore>> EmbeddedMetaStore::Open(
    std::unique_ptr<KvStore> kv, const Clock* clock, EmbeddedMetaStoreOptions options) {
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
  std::unique_ptr<EmbeddedMetaStore> store(new EmbeddedMetaStore(std::move(kv), clock, options));
  {
    absl::MutexLock commit(&store->commit_mu_);
    HOTBED_RETURN_IF_ERROR(store->Load());
  }
  store->background_ = std::thread([s = store.get()] { s->RunBackground(); });
  return store;
}

EmbeddedMetaStore::EmbeddedMetaStore(std::unique_ptr<KvStore> kv, const Clock* clock,
                                     EmbeddedMetaStoreOptions options)
    : kv_(std::move(kv)), clock_(clock), options_(options) {}

EmbeddedMetaStore::~EmbeddedMetaStore() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (background_.joinable()) background_.join();
}

absl::Status EmbeddedMetaStore::Load() {
  absl::MutexLock lock(&mu_);
  keys_.clear();
  leases_.clear();
  revision_ = 1;
  absl::Status bad;
  HOTBED_RETURN_IF_ERROR(kv_->Scan("", "\xff", [&](absl::string_view key, absl::string_view value) {
    mu_.AssertHeld();
    bad = LoadEntry(key, value);
    return bad.ok();
  }));
  HOTBED_RETURN_IF_ERROR(bad);
  for (const auto& [key, kv] : keys_) {
    auto lease = leases_.find(kv.lease);
    if (lease != leases_.end()) lease->second.keys.insert(key);
  }
  history_.clear();
  history_bytes_ = 0;
  compacted_ = revision_;
  return absl::OkStatus();
}

absl::Status EmbeddedMetaStore::LoadEntry(absl::string_view key, absl::string_view value) {
  if (key == kVersionKey) return absl::OkStatus();
  if (key == kRevisionKey || key == kNextLeaseKey) {
    if (value.size() != 8) return Damaged(key, value);
    (key == kRevisionKey ? revision_ : next_lease_) = LoadLittle<uint64_t>(value.data());
    return absl::OkStatus();
  }
  if (key[0] == kLeasePrefix && key.size() == 9 && value.size() == 8) {
    const int64_t ttl_ns = LoadLittle<int64_t>(value.data());
    leases_[LoadBig64(key.data() + 1)] = Lease(ttl_ns, clock_->NowNs());
    return absl::OkStatus();
  }
  if (key[0] != kEntryPrefix || value.size() < kEntryHeaderBytes) return Damaged(key, value);
  KeyValue kv;
  kv.key = std::string(key.substr(1));
  kv.create_revision = LoadLittle<uint64_t>(value.data());
  kv.mod_revision = LoadLittle<uint64_t>(value.data() + 8);
  kv.lease = LoadLittle<uint64_t>(value.data() + 16);
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
  {
    // A read after a failed write must not show what the disk does not hold.
    absl::MutexLock commit(&commit_mu_);
    HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  }
  absl::ReaderMutexLock lock(&mu_);
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

absl::Status EmbeddedMetaStore::CheckOps(const std::vector<Compare>& compares,
                                         const std::vector<Op>& ops) const {
  const size_t most = std::max(compares.size(), ops.size());
  if (most > kTxnOpsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata transaction of ", most, " operations, the limit is ", kTxnOpsMax));
  }
  std::set<absl::string_view> seen;
  for (const Op& op : ops) {
    if (op.key.empty() || op.key.size() > options_.key_bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata key of ", op.key.size(), " bytes, allowed: 1..",
                       options_.key_bytes_max, ": \"", absl::CEscape(op.key.substr(0, 80)), "\""));
    }
    if (op.value.size() > options_.value_bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata value of \"", absl::CEscape(op.key), "\" has ", op.value.size(),
                       " bytes, the limit is ", options_.value_bytes_max));
    }
    if (!seen.insert(op.key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata transaction names key \"", absl::CEscape(op.key), "\" twice"));
    }
    if (op.kind == Op::Kind::kPut && op.lease != 0) {
      auto lease = leases_.find(op.lease);
      if (lease == leases_.end() || lease->second.ending) {
        return absl::NotFoundError(absl::StrCat("lease ", op.lease, " has ended"));
      }
    }
  }
  return absl::OkStatus();
}

bool EmbeddedMetaStore::Holds(const Compare& compare) const {
  auto it = keys_.find(compare.key);
  if (it == keys_.end()) return compare.equals == 0;
  return compare.equals == (compare.target == Compare::Target::kCreateRevision
                                ? it->second.create_revision
                                : it->second.mod_revision);
}

EmbeddedMetaStore::Commit EmbeddedMetaStore::Prepare(const std::vector<Op>& ops) const {
  Commit commit;
  commit.revision = revision_ + 1;
  for (const Op& op : ops) {
    auto existing = keys_.find(op.key);
    if (op.kind == Op::Kind::kDelete && existing == keys_.end()) continue;
    WatchEvent event;
    event.kind = op.kind;
    event.kv.key = op.key;
    event.kv.mod_revision = commit.revision;
    if (op.kind == Op::Kind::kPut) {
      event.kv.create_revision =
          existing == keys_.end() ? commit.revision : existing->second.create_revision;
      event.kv.value = op.value;
      event.kv.lease = op.lease;
    }
    commit.bytes += EventBytes(event);
    commit.events.push_back(std::move(event));
  }
  return commit;
}

absl::Status EmbeddedMetaStore::WriteAndApply(Commit commit, LeaseId ended) {
  std::unique_ptr<KvBatch> batch = kv_->NewBatch();
  for (const WatchEvent& event : commit.events) {
    if (event.kind == Op::Kind::kPut) {
      batch->Put(EntryKey(event.kv.key), EncodeEntry(event.kv));
    } else {
      batch->Delete(EntryKey(event.kv.key));
    }
  }
  if (!commit.events.empty()) batch->Put(kRevisionKey, Encode64(commit.revision));
  if (ended != 0) batch->Delete(LeaseKey(ended));
  if (absl::Status s = kv_->Write(batch.get()); !s.ok()) {
    recover_ = true;
    return s;
  }
  absl::MutexLock lock(&mu_);
  for (const WatchEvent& event : commit.events) ApplyEvent(event);
  if (ended != 0) leases_.erase(ended);
  if (!commit.events.empty()) {
    revision_ = commit.revision;
    history_bytes_ += commit.bytes;
    history_.push_back(std::move(commit));
    TrimHistory();
  }
  return absl::OkStatus();
}

void EmbeddedMetaStore::ApplyEvent(const WatchEvent& event) {
  auto existing = keys_.find(event.kv.key);
  if (existing != keys_.end()) {
    auto lease = leases_.find(existing->second.lease);
    if (lease != leases_.end()) lease->second.keys.erase(event.kv.key);
  }
  if (event.kind == Op::Kind::kDelete) {
    keys_.erase(event.kv.key);
    return;
  }
  keys_.insert_or_assign(event.kv.key, event.kv);
  auto lease = leases_.find(event.kv.lease);
  if (lease != leases_.end()) lease->second.keys.insert(event.kv.key);
}

void EmbeddedMetaStore::TrimHistory() {
  while (history_.size() > options_.history_revisions_max ||
         (history_bytes_ > options_.history_bytes_max && history_.size() > 1)) {
    compacted_ = history_.front().revision;
    history_bytes_ -= history_.front().bytes;
    history_.pop_front();
  }
}

absl::StatusOr<TxnResult> EmbeddedMetaStore::Txn(const std::vector<Compare>& compares,
                                                 const std::vector<Op>& ops) {
  absl::MutexLock commit_lock(&commit_mu_);
  HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  TxnResult result;
  Commit commit;
  {
    absl::ReaderMutexLock lock(&mu_);
    HOTBED_RETURN_IF_ERROR(CheckOps(compares, ops));
    result.revision = revision_;
    for (const Compare& compare : compares) {
      if (!Holds(compare)) return result;
    }
    commit = Prepare(ops);
  }
  result.succeeded = true;
  if (commit.events.empty()) return result;
  result.revision = commit.revision;
  HOTBED_RETURN_IF_ERROR(WriteAndApply(std::move(commit), 0));
  return result;
}

absl::StatusOr<LeaseId> EmbeddedMetaStore::GrantLease(absl::Duration ttl) {
  const int64_t ttl_ns = absl::ToInt64Nanoseconds(ttl);
  if (ttl_ns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease of ", absl::FormatDuration(ttl), ", allowed: above 0"));
  }
  absl::MutexLock commit_lock(&commit_mu_);
  HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  LeaseId lease;
  {
    absl::MutexLock lock(&mu_);
    lease = next_lease_++;
  }
  std::unique_ptr<KvBatch> batch = kv_->NewBatch();
  batch->Put(LeaseKey(lease), Encode64(static_cast<uint64_t>(ttl_ns)));
  batch->Put(kNextLeaseKey, Encode64(lease + 1));
  if (absl::Status s = kv_->Write(batch.get()); !s.ok()) {
    recover_ = true;
    return s;
  }
  absl::MutexLock lock(&mu_);
  leases_[lease] = Lease(ttl_ns, clock_->NowNs());
  return lease;
}

absl::Status EmbeddedMetaStore::KeepAlive(LeaseId lease) {
  absl::MutexLock lock(&mu_);
  auto it = leases_.find(lease);
  if (it == leases_.end() || it->second.ending || it->second.deadline_ns <= clock_->NowNs()) {
    return absl::NotFoundError(absl::StrCat("lease ", lease, " has ended"));
  }
  it->second.deadline_ns = clock_->NowNs() + it->second.ttl_ns;
  return absl::OkStatus();
}

absl::Status EmbeddedMetaStore::RevokeLease(LeaseId lease) { return EndLease(lease, false); }

absl::Status EmbeddedMetaStore::EndLease(LeaseId lease, bool only_if_due) {
  absl::MutexLock commit_lock(&commit_mu_);
  HOTBED_RETURN_IF_ERROR(RecoverIfNeeded());
  Commit commit;
  {
    absl::MutexLock lock(&mu_);
    auto it = leases_.find(lease);
    if (it == leases_.end()) {
      return absl::NotFoundError(absl::StrCat("lease ", lease, " has ended"));
    }
    if (only_if_due && it->second.deadline_ns > clock_->NowNs()) return absl::OkStatus();
    it->second.ending = true;
    std::vector<Op> ops;
    for (const std::string& key : it->second.keys) ops.push_back({Op::Kind::kDelete, key, "", 0});
    commit = Prepare(ops);
  }
  return WriteAndApply(std::move(commit), lease);
}

}  // namespace hotbed
