#include "server/tiers/spill/spill_record.h"

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kDeletedVersion = 2;  // the mark of a deleted row
constexpr uint8_t kValueVersion = 1;    // of metas and highest LSNs

uint8_t VersionByte(const SpillShard& shard, uint8_t version) {
  return version | static_cast<uint8_t>(static_cast<uint8_t>(shard.weight_type) << 4);
}

uint32_t RecordCrc(absl::string_view key, const uint8_t* record, uint32_t bytes) {
  return Crc32c(record, bytes, Crc32c(key.data(), key.size()));
}

absl::Status Damaged(const SpillShard& shard, uint64_t position, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      shard.shard.ToString(), ": spilled row of id ", shard.hashed ? Unmix64(position) : position,
      " is damaged: ", why, "; restore the table from a checkpoint"));
}

}  // namespace

SpillKey MakeSpillKey(TableId table, uint16_t slice, uint64_t position) {
  SpillKey key;
  StoreBig32(key.data(), table);
  StoreBig16(key.data() + 4, slice);
  StoreBig64(key.data() + 6, position);
  return key;
}

SpillKey SpillRowKey(const SpillShard& shard, uint64_t position) {
  return MakeSpillKey(shard.shard.table, shard.slice, position);
}

std::string After(const SpillKey& key) {
  std::string after(key.data(), key.size());
  after.push_back('\0');
  return after;
}

SpillKey FirstRowKey(const SpillShard& shard) { return SpillRowKey(shard, shard.first_position); }

std::string RowKeyLimit(const SpillShard& shard) {
  return After(SpillRowKey(shard, shard.last_position));
}

bool IsDeleted(const uint8_t* record) { return (record[0] & 0xf) == kDeletedVersion; }

void MarkDeleted(bool deleted, uint8_t* record) {
  record[0] = deleted ? kDeletedVersion : kRecordVersion;
}

absl::string_view StoredRecord(absl::string_view record) {
  const bool deleted = IsDeleted(reinterpret_cast<const uint8_t*>(record.data()));
  return deleted ? record.substr(0, kDeletedRecordBytes) : record;
}

void CompleteRecord(const SpillShard& shard, const SpillKey& key, Lsn lsn, bool deleted,
                    uint8_t* record) {
  const uint32_t covered =
      (deleted ? kDeletedRecordBytes : shard.record_bytes()) - kSpillTrailerBytes;
  record[0] = VersionByte(shard, deleted ? kDeletedVersion : kRecordVersion);
  StoreLittle<uint64_t>(record + 1, lsn);
  StoreLittle<uint32_t>(record + covered, RecordCrc(View(key), record, covered));
}

absl::Status CheckRecord(const SpillShard& shard, uint64_t position, const SpillKey& key,
                         absl::string_view value) {
  const auto* record = reinterpret_cast<const uint8_t*>(value.data());
  const bool deleted = value.size() >= kDeletedRecordBytes && IsDeleted(record);
  if (value.size() != shard.record_bytes() && !(deleted && value.size() == kDeletedRecordBytes)) {
    return Damaged(
        shard, position,
        absl::StrCat(value.size(), " bytes where ", shard.record_bytes(), " were expected"));
  }
  const uint32_t covered =
      (deleted ? kDeletedRecordBytes : shard.record_bytes()) - kSpillTrailerBytes;
  if (LoadLittle<uint32_t>(record + covered) != RecordCrc(View(key), record, covered)) {
    return Damaged(shard, position, "wrong checksum");
  }
  if (record[0] != VersionByte(shard, deleted ? kDeletedVersion : kRecordVersion)) {
    return Damaged(shard, position, absl::StrCat("unknown version byte ", record[0]));
  }
  return absl::OkStatus();
}

// Version byte, value, CRC-32C of key and all before.
std::string SealValue(absl::string_view key, absl::string_view value) {
  std::string record(1, static_cast<char>(kValueVersion));
  record.append(value.data(), value.size());
  char crc[4];
  StoreLittle<uint32_t>(crc, RecordCrc(key, reinterpret_cast<const uint8_t*>(record.data()),
                                       static_cast<uint32_t>(record.size())));
  record.append(crc, sizeof(crc));
  return record;
}

absl::StatusOr<absl::string_view> OpenValue(const SpillShard& shard, absl::string_view what,
                                            absl::string_view key, absl::string_view stored) {
  const size_t size = stored.size();
  const auto* bytes = reinterpret_cast<const uint8_t*>(stored.data());
  if (size < 5 || bytes[0] != kValueVersion ||
      LoadLittle<uint32_t>(bytes + size - 4) !=
          RecordCrc(key, bytes, static_cast<uint32_t>(size - 4))) {
    return absl::DataLossError(absl::StrCat(shard.shard.ToString(), ": spilled ", what,
                                            " is damaged: wrong version or checksum"));
  }
  return stored.substr(1, size - 5);
}

void PutShardValue(const SpillShard& shard, uint16_t slice, absl::string_view value,
                   KvBatch* batch) {
  const SpillKey key = MakeSpillKey(shard.shard.table, slice, shard.shard.index);
  batch->Put(View(key), SealValue(View(key), value));
}

void PutHighestLsn(const SpillShard& shard, Lsn lsn, KvBatch* batch) {
  char bytes[8];
  StoreLittle<uint64_t>(bytes, lsn);
  PutShardValue(shard, kHighestLsnSlice, {bytes, sizeof(bytes)}, batch);
}

absl::StatusOr<std::string> ParseShardValue(const SpillShard& shard, uint16_t slice,
                                            absl::string_view stored) {
  const SpillKey key = MakeSpillKey(shard.shard.table, slice, shard.shard.index);
  HOTBED_ASSIGN_OR_RETURN(
      const absl::string_view value,
      OpenValue(shard, slice == kMetaSlice ? "meta" : "highest LSN", View(key), stored));
  return std::string(value);
}

}  // namespace hotbed
