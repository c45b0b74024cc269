// Keys and values of the spill tier (spill_tier.h): of rows, and of the values of a shard as a
// whole. Pure functions.
#ifndef HOTBED_SERVER_TIERS_SPILL_SPILL_RECORD_H_
#define HOTBED_SERVER_TIERS_SPILL_SPILL_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "kv/kv_store.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

constexpr size_t kSpillKeyBytes = 14;
constexpr size_t kSpillGroupBytes = 6;  // of keys of rows of one slice of a table
constexpr uint16_t kMetaSlice = 0xffff;
constexpr uint16_t kHighestLsnSlice = 0xfffe;
constexpr uint16_t kJournalSlice = 0xfffd;  // row_journal.h

using SpillKey = std::array<char, kSpillKeyBytes>;

SpillKey MakeSpillKey(TableId table, uint16_t slice, uint64_t position);
// The key of a row of the shard.
SpillKey SpillRowKey(const SpillShard& shard, uint64_t position);
inline absl::string_view View(const SpillKey& key) { return {key.data(), key.size()}; }
// The least key above `key`: positions reach 2^64 - 1, so adding one is no way to get a limit.
std::string After(const SpillKey& key);
// The range of the shard's row keys.
SpillKey FirstRowKey(const SpillShard& shard);
std::string RowKeyLimit(const SpillShard& shard);

// The mark of a deleted row has no payload. In memory and in blocks it takes as much room as a
// record; its end is not used there.
inline constexpr uint32_t kDeletedRecordBytes = kSpillHeaderBytes + kSpillTrailerBytes;
bool IsDeleted(const uint8_t* record);
// Before the record is complete.
void MarkDeleted(bool deleted, uint8_t* record);
// The bytes of the record that are stored.
absl::string_view StoredRecord(absl::string_view record);

// Fills in everything of a record except its payload.
void CompleteRecord(const SpillShard& shard, const SpillKey& key, Lsn lsn, bool deleted,
                    uint8_t* record);
// DataLoss names shard and id.
absl::Status CheckRecord(const SpillShard& shard, uint64_t position, const SpillKey& key,
                         absl::string_view record);

// A value of the shard as a whole as it is stored under `key`, and the value that was stored; the
// view is of `stored`. DataLoss: damaged.
std::string SealValue(absl::string_view key, absl::string_view value);
absl::StatusOr<absl::string_view> OpenValue(const SpillShard& shard, absl::string_view what,
                                            absl::string_view key, absl::string_view stored);

// Stores a value of the shard as a whole.
void PutShardValue(const SpillShard& shard, uint16_t slice, absl::string_view value,
                   KvBatch* batch);
void PutHighestLsn(const SpillShard& shard, Lsn lsn, KvBatch* batch);
// The value that PutShardValue was given. DataLoss: damaged.
absl::StatusOr<std::string> ParseShardValue(const SpillShard& shard, uint16_t slice,
                                            absl::string_view stored);

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_SPILL_RECORD_H_
