#include "server/tiers/spill_tier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/byte_order.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "server/tiers/row_block.h"

namespace hotbed {
namespace {

constexpr size_t kKeyBytes = 14;
constexpr uint16_t kMetaSlice = 0xffff;
constexpr uint16_t kHighestLsnSlice = 0xfffe;
constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kValueVersion = 1;  // of metas and highest LSNs
constexpr uint64_t kRestoreBatchBytes = 4ull << 20;
constexpr absl::string_view kFrozenPrefix = "frozen-";

using Key = std::array<char, kKeyBytes>;

Key MakeKey(TableId table, uint16_t slice, uint64_t position) {
  Key key;
  StoreBig32(key.data(), table);
  StoreBig16(key.data() + 4, slice);
  StoreBig64(key.data() + 6, position);
  return key;
}

absl::string_view View(const Key& key) { return {key.data(), key.size()}; }

// The least key above `key`: positions reach 2^64 - 1, so adding one is no way to get a limit.
std::string After(const Key& key) {
  std::string after(key.data(), key.size());
  after.push_back('\0');
  return after;
}

uint8_t VersionByte(const SpillShard& shard) {
  return kRecordVersion | static_cast<uint8_t>(static_cast<uint8_t>(shard.weight_type) << 4);
}

uint32_t RecordCrc(const Key& key, const uint8_t* record, uint32_t bytes) {
  return Crc32c(record, bytes, Crc32c(key.data(), key.size()));
}

absl::Status Damaged(const SpillShard& shard, uint64_t position, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      shard.shard.ToString(), ": spilled row of id ", shard.hashed ? Unmix64(position) : position,
      " is damaged: ", why, "; restore the table from a checkpoint"));
}

absl::Status CheckRecord(const SpillShard& shard, uint64_t position, const Key& key,
                         absl::string_view value) {
  const auto* record = reinterpret_cast<const uint8_t*>(value.data());
  if (value.size() != shard.record_bytes()) {
    return Damaged(
        shard, position,
        absl::StrCat(value.size(), " bytes where ", shard.record_bytes(), " were expected"));
  }
  const uint32_t covered = shard.record_bytes() - kSpillTrailerBytes;
  if (LoadLittle<uint32_t>(record + covered) != RecordCrc(key, record, covered)) {
    return Damaged(shard, position, "wrong checksum");
  }
  if (record[0] != VersionByte(shard)) {
    return Damaged(shard, position, absl::StrCat("unknown version byte ", record[0]));
  }
  return absl::OkStatus();
}

// Numbers of the frozen copies in `dir`, ascending.
std::vector<uint64_t> FrozenNumbers(const std::string& dir) {
  std::vector<uint64_t> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    uint64_t number = 0;
    if (absl::StartsWith(name, kFrozenPrefix) &&
        absl::SimpleAtoi(name.substr(kFrozenPrefix.size()), &number)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string FrozenDir(const std::string& dir, uint64_t number) {
  return absl::StrFormat("%s/%s%06d", dir, std::string(kFrozenPrefix), number);
}

}  // namespace

SpillShard::SpillShard(const TableSpec& table, const ShardRange& range, ShardId id)
    : shard(id),
      hashed(table.hashed),
      slice(static_cast<uint16_t>(range.column_first)),
      first_position(range.first_position(table.hashed)),
      last_position(range.last_position(table.hashed)),
      weight_type(table.weight_type) {
  const uint32_t dim = range.column_limit - range.column_first;
  payload_bytes = BytesPerWeight(table.weight_type) * dim + StateBytes(table.optimizer, dim);
}

Lsn SpillTier::LsnOf(const uint8_t* record) { return LoadLittle<uint64_t>(record + 1); }

absl::Status SpillTier::Fetch(const SpillShard& shard, absl::Span<const uint64_t> positions,
                              uint8_t* records, uint8_t* found) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  std::vector<Key> keys(positions.size());
  std::vector<absl::string_view> views(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    keys[i] = MakeKey(shard.shard.table, shard.slice, positions[i]);
    views[i] = View(keys[i]);
  }
  std::fill(found, found + positions.size(), uint8_t{0});
  absl::Status damage;
  const absl::Status read = store->MultiGet(views, [&](size_t i, absl::string_view value) {
    if (!damage.ok()) return;
    damage = CheckRecord(shard, positions[i], keys[i], value);
    if (!damage.ok()) return;
    std::memcpy(records + i * shard.record_bytes(), value.data(), value.size());
    found[i] = 1;
  });
  if (absl::IsDataLoss(read)) {
    return absl::DataLossError(absl::StrCat(
        shard.shard.ToString(), ": among ids ",
        shard.hashed ? Unmix64(positions.front()) : positions.front(), " to ",
        shard.hashed ? Unmix64(positions.back()) : positions.back(), ": ", read.message()));
  }
  HOTBED_RETURN_IF_ERROR(read);
  return damage;
}

absl::Status SpillTier::Write(const SpillShard& shard, absl::Span<const SpillRows> rows,
                              Lsn highest_lsn) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  struct Entry {
    uint64_t position;
    uint32_t part;
    uint32_t row;
  };
  std::vector<Entry> entries;
  for (uint32_t p = 0; p < rows.size(); ++p) {
    for (uint32_t r = 0; r < rows[p].count; ++r) entries.push_back({rows[p].positions[r], p, r});
  }
  // Sorted runs make a memtable insert cheaper. Equal positions keep their order, so that the later
  // one wins.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.position < b.position; });
  const uint32_t covered = shard.record_bytes() - kSpillTrailerBytes;
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  for (const Entry& entry : entries) {
    const SpillRows& part = rows[entry.part];
    uint8_t* record = part.records + uint64_t{shard.record_bytes()} * entry.row;
    const Key key = MakeKey(shard.shard.table, shard.slice, entry.position);
    record[0] = VersionByte(shard);
    StoreLittle<uint64_t>(record + 1, part.lsn);
    StoreLittle<uint32_t>(record + covered, RecordCrc(key, record, covered));
    batch->Put(View(key), {reinterpret_cast<const char*>(record), shard.record_bytes()});
  }
  char lsn[8];
  StoreLittle<uint64_t>(lsn, highest_lsn);
  PutShardValue(shard, kHighestLsnSlice, {lsn, sizeof(lsn)}, batch.get());
  return store->Write(batch.get());
}

absl::StatusOr<bool> SpillTier::HasRows(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  bool any = false;
  const Key first = MakeKey(shard.shard.table, shard.slice, shard.first_position);
  const std::string limit = After(MakeKey(shard.shard.table, shard.slice, shard.last_position));
  HOTBED_RETURN_IF_ERROR(store->Scan(View(first), limit, [&](absl::string_view, absl::string_view) {
    any = true;
    return false;
  }));
  return any;
}

// Value of a shard: version byte, value, CRC-32C of key and all before.
void SpillTier::PutShardValue(const SpillShard& shard, uint16_t slice, absl::string_view value,
                              KvBatch* batch) {
  const Key key = MakeKey(shard.shard.table, slice, shard.shard.index);
  std::string record(1, static_cast<char>(kValueVersion));
  record.append(value.data(), value.size());
  char crc[4];
  StoreLittle<uint32_t>(crc, RecordCrc(key, reinterpret_cast<const uint8_t*>(record.data()),
                                       static_cast<uint32_t>(record.size())));
  record.append(crc, sizeof(crc));
  batch->Put(View(key), record);
}

absl::StatusOr<std::string> SpillTier::ReadShardValue(const SpillShard& shard, uint16_t slice) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const Key key = MakeKey(shard.shard.table, slice, shard.shard.index);
  absl::StatusOr<std::string> record = store->Get(View(key));
  if (absl::IsNotFound(record.status())) return std::string();
  HOTBED_RETURN_IF_ERROR(record.status());
  const absl::string_view what = slice == kMetaSlice ? "meta" : "highest LSN";
  const size_t size = record->size();
  const auto* bytes = reinterpret_cast<const uint8_t*>(record->data());
  if (size < 5 || bytes[0] != kValueVersion ||
      LoadLittle<uint32_t>(bytes + size - 4) !=
          RecordCrc(key, bytes, static_cast<uint32_t>(size - 4))) {
    return absl::DataLossError(absl::StrCat(shard.shard.ToString(), ": spilled ", what,
                                            " is damaged: wrong version or checksum"));
  }
  return record->substr(1, size - 5);
}

absl::StatusOr<Lsn> SpillTier::HighestLsn(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::string value, ReadShardValue(shard, kHighestLsnSlice));
  return value.size() == 8 ? LoadLittle<uint64_t>(value.data()) : 0;
}

absl::StatusOr<std::string> SpillTier::ReadMeta(const SpillShard& shard) {
  return ReadShardValue(shard, kMetaSlice);
}

absl::Status SpillTier::WriteMeta(const SpillShard& shard, absl::string_view meta) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  PutShardValue(shard, kMetaSlice, meta, batch.get());
  return store->Write(batch.get());
}

uint64_t SpillTier::BytesOf(const SpillShard& shard) {
  const absl::StatusOr<std::shared_ptr<KvStore>> store = Use();
  if (!store.ok()) return 0;
  return (*store)->EstimateBytes(
      View(MakeKey(shard.shard.table, shard.slice, shard.first_position)),
      After(MakeKey(shard.shard.table, shard.slice, shard.last_position)));
}

absl::Status SpillTier::Delete(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const TableId table = shard.shard.table;
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  batch->DeleteRange(View(MakeKey(table, shard.slice, shard.first_position)),
                     After(MakeKey(table, shard.slice, shard.last_position)));
  batch->Delete(View(MakeKey(table, kMetaSlice, shard.shard.index)));
  batch->Delete(View(MakeKey(table, kHighestLsnSlice, shard.shard.index)));
  return store->Write(batch.get());
}

namespace {

class RowReader : public ShardRowReader {
 public:
  RowReader(const SpillShard& shard, Lsn above, std::shared_ptr<KvStore> store)
      : shard_(shard),
        above_(above),
        store_(std::move(store)),
        snapshot_(store_->TakeSnapshot()),
        next_(MakeKey(shard.shard.table, shard.slice, shard.first_position)),
        limit_(After(MakeKey(shard.shard.table, shard.slice, shard.last_position))),
        bytes_total_(store_->EstimateBytes(View(next_), limit_)) {}

  absl::StatusOr<std::string> Next(uint64_t bytes_max) override {
    if (at_end_) return std::string();
    RowBlockWriter block(shard_.record_bytes());
    absl::Status damage;
    at_end_ = true;
    const absl::Status scanned =
        snapshot_->Scan(View(next_), limit_, [&](absl::string_view key, absl::string_view value) {
          Key at;
          std::memcpy(at.data(), key.data(), at.size());
          if (block.rows() > 0 && block.bytes() + value.size() > bytes_max) {
            next_ = at;
            at_end_ = false;
            return false;
          }
          const uint64_t position = LoadBig64(key.data() + 6);
          damage = CheckRecord(shard_, position, at, value);
          if (!damage.ok()) return false;
          if (Wanted(value)) block.Add(position, value);
          return true;
        });
    if (!damage.ok()) return damage;
    if (!scanned.ok()) {
      return absl::Status(scanned.code(),
                          absl::StrCat(shard_.shard.ToString(), ": ", scanned.message()));
    }
    return block.rows() == 0 ? std::string() : block.Finish();
  }
  uint64_t bytes_total() const override { return bytes_total_; }

 private:
  bool Wanted(absl::string_view value) const {
    return above_ == 0 || SpillTier::LsnOf(reinterpret_cast<const uint8_t*>(value.data())) > above_;
  }

  const SpillShard shard_;
  const Lsn above_;
  const std::shared_ptr<KvStore> store_;
  const std::unique_ptr<KvSnapshot> snapshot_;
  Key next_;
  const std::string limit_;
  const uint64_t bytes_total_;
  bool at_end_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardRowReader>> SpillTier::Read(const SpillShard& shard,
                                                                Lsn above) {
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> store, Use());
  return std::make_unique<RowReader>(shard, above, std::move(store));
}

absl::Status SpillTier::WriteBlock(const SpillShard& shard, absl::string_view bytes) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  HOTBED_ASSIGN_OR_RETURN(const RowBlock block, RowBlock::Parse(bytes, shard.record_bytes()));
  HOTBED_ASSIGN_OR_RETURN(Lsn highest, HighestLsn(shard));
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  for (uint32_t row = 0; row < block.rows(); ++row) {
    const uint64_t position = block.position(row);
    if (position < shard.first_position || position > shard.last_position) {
      return absl::InvalidArgumentError(
          absl::StrCat("a block of rows for ", shard.shard.ToString(), " has position ", position,
                       ", outside of ", shard.first_position, " to ", shard.last_position));
    }
    const Key key = MakeKey(shard.shard.table, shard.slice, position);
    const absl::string_view record = block.record(row);
    HOTBED_RETURN_IF_ERROR(CheckRecord(shard, position, key, record));
    highest = std::max(highest, LsnOf(reinterpret_cast<const uint8_t*>(record.data())));
    batch->Put(View(key), record);
  }
  char lsn[8];
  StoreLittle<uint64_t>(lsn, highest);
  PutShardValue(shard, kHighestLsnSlice, {lsn, sizeof(lsn)}, batch.get());
  return store->Write(batch.get());
}

absl::Status SpillTier::Freeze() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const std::vector<uint64_t> old = FrozenNumbers(dir_);
  const uint64_t next = old.empty() ? 1 : old.back() + 1;
  // RocksDB builds the copy beside and renames it, so a directory of this name is whole.
  HOTBED_RETURN_IF_ERROR(store->Freeze(FrozenDir(dir_, next)));
  for (uint64_t number : old) {
    std::error_code error;
    std::filesystem::remove_all(FrozenDir(dir_, number), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("removing ", FrozenDir(dir_, number), ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status SpillTier::RestoreTable(TableId table) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const Key first = MakeKey(table, 0, 0);
  const Key limit = MakeKey(table + 1, 0, 0);  // no table has the id 2^32 - 1
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  batch->DeleteRange(View(first), View(limit));
  HOTBED_RETURN_IF_ERROR(store->Write(batch.get()));
  batch->Clear();
  const std::vector<uint64_t> frozen = FrozenNumbers(dir_);
  if (!frozen.empty()) {
    KvOptions options = options_;
    options.dir = FrozenDir(dir_, frozen.back());
    options.read_only = true;
    HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<KvStore> copy, KvStore::Open(options));
    absl::Status written;
    HOTBED_RETURN_IF_ERROR(
        copy->Scan(View(first), View(limit), [&](absl::string_view key, absl::string_view value) {
          batch->Put(key, value);
          if (batch->bytes() < kRestoreBatchBytes) return true;
          written = store->Write(batch.get());
          batch->Clear();
          return written.ok();
        }));
    HOTBED_RETURN_IF_ERROR(written);
    HOTBED_RETURN_IF_ERROR(store->Write(batch.get()));
  }
  return store->Flush();
}

}  // namespace hotbed
