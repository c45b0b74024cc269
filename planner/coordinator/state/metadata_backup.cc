#include "planner/coordinator/state/metadata_backup.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/byte_reader.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDMET";
constexpr uint32_t kVersion = 1;
constexpr size_t kRecordsPerWrite = 100;

bool IsRestored(const std::string& key) {
  for (const char* known :
       {keys::kClusterKey, keys::kGenerationKey, keys::kTableCounter, keys::kServerCounter,
        keys::kSessionCounter, keys::kMoveCounter, keys::kMovesKey}) {
    if (key == known) return true;
  }
  return absl::StartsWith(key, keys::kSessions) || absl::StartsWith(key, keys::kGroups) ||
         absl::StartsWith(key, keys::kDropped) || absl::StartsWith(key, keys::kEvents);
}

}  // namespace

std::string SerializeBackup(const std::vector<KeyValue>& records) {
  std::string out(kMagic);
  AppendLittle<uint32_t>(kVersion, &out);
  AppendLittle<uint64_t>(records.size(), &out);
  for (const KeyValue& record : records) {
    AppendString(record.key, &out);
    AppendString(record.value, &out);
  }
  AppendLittle<uint32_t>(Crc32c(out.data(), out.size()), &out);
  return out;
}

absl::StatusOr<std::vector<KeyValue>> ParseBackup(absl::string_view bytes) {
  if (bytes.size() < kMagic.size() + 16 || !absl::StartsWith(bytes, kMagic)) {
    return absl::DataLossError(absl::StrCat(bytes.size(), " bytes are no backup of metadata"));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - 4);
  if (LoadLittle<uint32_t>(bytes.data() + body.size()) != Crc32c(body.data(), body.size())) {
    return absl::DataLossError("the checksum of the backup does not match: it is damaged");
  }
  ByteReader in(body.substr(kMagic.size()));
  if (const uint32_t version = in.Take<uint32_t>(); version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the backup has version ", version, ", this program reads ", kVersion));
  }
  std::vector<KeyValue> records;
  std::string format;
  for (uint64_t left = in.Take<uint64_t>(); left > 0 && in.ok(); --left) {
    KeyValue record;
    record.key = in.TakeString();
    record.value = in.TakeString();
    if (record.key == keys::kFormatKey) format = record.value;
    records.push_back(std::move(record));
  }
  if (!in.ok() || in.left() != 0) return absl::DataLossError("the backup does not parse");
  if (format != keys::kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("the backup is of metadata of format \"",
                                                      format, "\", this program reads \"",
                                                      keys::kFormat, "\""));
  }
  return records;
}

absl::StatusOr<bool> RestoreBackup(const std::vector<KeyValue>& records, MetaStore* store) {
  HOTBED_ASSIGN_OR_RETURN(const MetaStore::RangeResult there, store->Range(keys::kFormatKey, ""));
  if (!there.kvs.empty()) return false;
  ClusterState state;
  HOTBED_RETURN_IF_ERROR(state.Reset(records));
  // The numbers that the backup says were given out; a rebuild adds those that servers know.
  v1::GivenOut given = state.given_before();
  given.set_session(std::max<uint64_t>(1, state.counters().sessions));
  std::vector<Op> ops;
  for (const KeyValue& record : records) {
    if (IsRestored(record.key)) ops.push_back({Op::Kind::kPut, record.key, record.value});
  }
  ops.push_back({Op::Kind::kPut, keys::kGivenKey, given.SerializeAsString()});
  ops.push_back({Op::Kind::kPut, keys::kFormatKey, keys::kFormat});  // last: now it holds metadata
  std::vector<Op> batch;
  size_t bytes = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    bytes += TransactionBytes(ops[i]);
    batch.push_back(std::move(ops[i]));
    const bool full = i + 1 == ops.size() || batch.size() == kRecordsPerWrite ||
                      bytes + TransactionBytes(ops[i + 1]) > MetaStore::kTxnBytesMax;
    if (!full) continue;
    // Another coordinator may have begun meanwhile: its metadata stay as they are.
    HOTBED_ASSIGN_OR_RETURN(const TxnResult written, store->Txn({{keys::kFormatKey, 0}}, batch));
    if (!written.succeeded) {
      return absl::AbortedError("the metadata store was written by another coordinator meanwhile");
    }
    batch.clear();
    bytes = 0;
  }
  return true;
}

}  // namespace hotbed
