#include "planner/coordinator/metadata/move_metadata.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/record_file.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDMOV";

const KeyValue* Find(const std::vector<KeyValue>& records, absl::string_view key) {
  const auto it = std::find_if(records.begin(), records.end(),
                               [key](const KeyValue& record) { return record.key == key; });
  return it == records.end() ? nullptr : &*it;
}

std::string ValueOf(const std::vector<KeyValue>& records, absl::string_view key) {
  const KeyValue* const record = Find(records, key);
  return record == nullptr ? "" : record->value;
}

Compare Unchanged(const std::vector<KeyValue>& records, const char* key) {
  const KeyValue* const record = Find(records, key);
  return {key, record == nullptr ? 0 : record->mod_revision};
}

absl::StatusOr<MetaStore::RangeResult> ReadAll(MetaStore* store) {
  return store->Range(keys::kRoot, PrefixLimit(keys::kRoot));
}

// Nobody leads while it holds.
Compare NobodyLeads() { return {keys::kElectionKey, 0}; }

absl::Status CheckNobodyLeads(MetaStore* store) {
  HOTBED_ASSIGN_OR_RETURN(const MetaStore::RangeResult leader,
                          store->Range(keys::kElectionKey, ""));
  if (leader.kvs.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the coordinator at ", leader.kvs[0].value,
                   " uses these metadata: stop all coordinators of the cluster first"));
}

absl::Status WrittenMeanwhile() {
  return absl::AbortedError(
      "somebody else wrote to the store meanwhile: stop all coordinators of the cluster, and try "
      "again");
}

// Replaces the format under compares of `there`. The leader's record is replaced, too: a
// coordinator that was held up compares it in each transaction, and can write nothing any more.
absl::Status Mark(const std::vector<KeyValue>& there, const char* format, std::vector<Op> more,
                  MetaStore* store) {
  more.push_back({Op::Kind::kPut, keys::kFormatKey, format});
  more.push_back({Op::Kind::kPut, keys::kLeaderKey, "moved"});
  HOTBED_ASSIGN_OR_RETURN(const TxnResult marked,
                          store->Txn({Unchanged(there, keys::kFormatKey),
                                      Unchanged(there, keys::kLeaderKey), NobodyLeads()},
                                     more));
  return marked.succeeded ? absl::OkStatus() : WrittenMeanwhile();
}

// The revisions of the stores in which these metadata were before.
absl::StatusOr<uint64_t> RevisionsBefore(const std::vector<KeyValue>& records) {
  uint64_t before = 0;
  const std::string revisions = ValueOf(records, keys::kRevisionsKey);
  if (revisions.empty() || absl::SimpleAtoi(revisions, &before)) return before;
  return absl::DataLossError(absl::StrCat(keys::kRevisionsKey, " is \"", revisions, "\""));
}

// Whether what was exported from the store `there` is in the file, or was when it was written.
absl::Status CheckNotOlder(const ExportedMetadata& metadata, const std::vector<KeyValue>& there) {
  HOTBED_ASSIGN_OR_RETURN(const uint64_t file, RevisionsBefore(metadata.records));
  HOTBED_ASSIGN_OR_RETURN(uint64_t store, RevisionsBefore(there));
  uint64_t last = 0;
  for (const KeyValue& record : there) last = std::max(last, record.mod_revision);
  store += last;
  if (file >= store) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the store was exported later than the file was written: its changes go up to revision ",
      store, ", those of the file up to ", file,
      ". Import the later export; or, to lose the changes since, give --replace-later"));
}

// Whether the file is that of the import which has not ended, or a later one of its cluster. The
// import's first transaction has noted both.
absl::Status CheckGoesOn(const ExportedMetadata& metadata, const std::vector<KeyValue>& there) {
  HOTBED_ASSIGN_OR_RETURN(const uint64_t file, RevisionsBefore(metadata.records));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t begun, RevisionsBefore(there));
  const std::string cluster = ValueOf(there, keys::kClusterKey);
  if (cluster == metadata.cluster_id && file >= begun) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "an import into the store has not ended, of cluster ", cluster, " up to revision ", begun,
      ", and the file is of cluster ", metadata.cluster_id, " up to ", file,
      ". Import the file that it began with; or, to have this one, give --replace-later"));
}

absl::Status CheckExportable(const std::vector<KeyValue>& records) {
  const std::string format = ValueOf(records, keys::kFormatKey);
  if (format.empty()) return absl::NotFoundError("there are no metadata");
  if (format == keys::kImporting) {
    return absl::FailedPreconditionError(
        "an import into it has not ended: run 'hotbed metadata import' again first");
  }
  if (format == keys::kFormat || format == keys::kExported) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the metadata are of format \"", format,
                                                    "\", this program reads \"", keys::kFormat,
                                                    "\": use the version that wrote them"));
}

}  // namespace

size_t ExportedMetadata::count(absl::string_view prefix) const {
  return static_cast<size_t>(std::count_if(
      records.begin(), records.end(),
      [prefix](const KeyValue& record) { return absl::StartsWith(record.key, prefix); }));
}

std::string SerializeExport(const ExportedMetadata& metadata) {
  return SerializeRecords(kMagic, metadata.records);
}

absl::StatusOr<ExportedMetadata> ParseExport(absl::string_view bytes) {
  ExportedMetadata metadata;
  HOTBED_ASSIGN_OR_RETURN(metadata.records, ParseRecords(kMagic, "export of metadata", bytes));
  metadata.cluster_id = ValueOf(metadata.records, keys::kClusterKey);
  return metadata;
}

absl::StatusOr<ExportedMetadata> ExportMetadata(bool mark, MetaStore* store) {
  HOTBED_RETURN_IF_ERROR(CheckNobodyLeads(store));
  HOTBED_ASSIGN_OR_RETURN(MetaStore::RangeResult all, ReadAll(store));
  HOTBED_RETURN_IF_ERROR(CheckExportable(all.kvs));
  if (mark) {
    HOTBED_RETURN_IF_ERROR(Mark(all.kvs, keys::kExported, {}, store));
    // The mark ends all writes, so this read has those that came after the first one.
    HOTBED_ASSIGN_OR_RETURN(all, ReadAll(store));
    if (ValueOf(all.kvs, keys::kFormatKey) != keys::kExported) return WrittenMeanwhile();
  }
  HOTBED_ASSIGN_OR_RETURN(const uint64_t before, RevisionsBefore(all.kvs));
  ExportedMetadata metadata;
  metadata.cluster_id = ValueOf(all.kvs, keys::kClusterKey);
  for (KeyValue& record : all.kvs) {
    if (record.key == keys::kRevisionsKey) continue;
    if (record.key == keys::kFormatKey) record.value = std::string(keys::kFormat);
    metadata.records.push_back({std::move(record.key), std::move(record.value), 0});
  }
  metadata.records.push_back({keys::kRevisionsKey, absl::StrCat(before + all.revision), 0});
  return metadata;
}

absl::Status MayImport(const ExportedMetadata& metadata, bool replaces_later, MetaStore* store) {
  HOTBED_RETURN_IF_ERROR(CheckNobodyLeads(store));
  HOTBED_ASSIGN_OR_RETURN(const MetaStore::RangeResult there, ReadAll(store));
  const std::string format = ValueOf(there.kvs, keys::kFormatKey);
  const std::string cluster = ValueOf(there.kvs, keys::kClusterKey);
  if (there.kvs.empty()) return absl::OkStatus();
  if (format == keys::kImporting) {
    return replaces_later ? absl::OkStatus() : CheckGoesOn(metadata, there.kvs);
  }
  if (format == keys::kExported && cluster == metadata.cluster_id) {
    return replaces_later ? absl::OkStatus() : CheckNotOlder(metadata, there.kvs);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the store holds metadata of cluster ", cluster,
      format == keys::kExported ? ", which were exported, and the file is of cluster " : "",
      format == keys::kExported ? metadata.cluster_id : "",
      ". They stay as they are: import into an empty store, or into that which the file was "
      "exported from"));
}

absl::Status ImportMetadata(const ExportedMetadata& metadata, bool replaces_later,
                            MetaStore* store) {
  HOTBED_RETURN_IF_ERROR(MayImport(metadata, replaces_later, store));
  HOTBED_ASSIGN_OR_RETURN(MetaStore::RangeResult there, ReadAll(store));
  const std::string cluster = ValueOf(metadata.records, keys::kClusterKey);
  const std::string revisions = ValueOf(metadata.records, keys::kRevisionsKey);
  HOTBED_RETURN_IF_ERROR(Mark(there.kvs, keys::kImporting,
                              {{Op::Kind::kPut, keys::kClusterKey, cluster},
                               {Op::Kind::kPut, keys::kRevisionsKey, revisions}},
                              store));
  HOTBED_ASSIGN_OR_RETURN(there, ReadAll(store));
  absl::flat_hash_set<absl::string_view> replaced = {keys::kFormatKey};
  for (const KeyValue& record : metadata.records) replaced.insert(record.key);
  std::vector<Op> ops;
  for (const KeyValue& record : there.kvs) {
    if (!replaced.contains(record.key)) ops.push_back({Op::Kind::kDelete, record.key, ""});
  }
  for (const KeyValue& record : metadata.records) {
    if (record.key != keys::kFormatKey) ops.push_back({Op::Kind::kPut, record.key, record.value});
  }
  const std::vector<Compare> mine = {Unchanged(there.kvs, keys::kFormatKey), NobodyLeads()};
  HOTBED_ASSIGN_OR_RETURN(const bool written, WriteInBatches(mine, ops, store));
  if (!written) return WrittenMeanwhile();
  HOTBED_ASSIGN_OR_RETURN(
      const TxnResult ended,
      store->Txn(mine, {{Op::Kind::kPut, keys::kFormatKey, keys::kFormat}}));  // now they count
  return ended.succeeded ? absl::OkStatus() : WrittenMeanwhile();
}

}  // namespace hotbed
