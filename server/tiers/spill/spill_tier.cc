#include "server/tiers/spill/spill_tier.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "server/tiers/spill/live_reader.h"
#include "server/tiers/spill/row_journal.h"
#include "server/tiers/spill/spill_marks.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_snapshot.h"

namespace hotbed {
namespace {

constexpr uint64_t kRestoreBatchBytes = 4ull << 20;
constexpr absl::string_view kFrozenPrefix = "frozen-";

// Numbers of the frozen snapshots in `dir`, ascending.
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

// Rows of at least so many bytes go to the disk as a file of their own, past memtable, flush and
// compaction. A file costs two syncs.
constexpr uint64_t kWriteFileBytesMin = 8ull << 20;

struct SpillEntry {
  uint64_t position = 0;
  absl::string_view record;  // as it is stored
};

// Completes the records and puts them in order of position. If a row occurs twice, the last one
// counts.
std::vector<SpillEntry> CompleteInOrder(const SpillShard& shard, absl::Span<const SpillRows> rows) {
  struct Source {
    uint64_t position;
    uint32_t part;
    uint32_t row;
  };
  std::vector<Source> sources;
  for (uint32_t p = 0; p < rows.size(); ++p) {
    for (uint32_t r = 0; r < rows[p].count; ++r) sources.push_back({rows[p].positions[r], p, r});
  }
  const auto before = [](const Source& a, const Source& b) { return a.position < b.position; };
  if (!std::is_sorted(sources.begin(), sources.end(), before)) {
    std::stable_sort(sources.begin(), sources.end(), before);
  }
  std::vector<SpillEntry> entries;
  entries.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    if (i + 1 < sources.size() && sources[i + 1].position == source.position) continue;
    const SpillRows& part = rows[source.part];
    uint8_t* const record = part.records + uint64_t{shard.record_bytes()} * source.row;
    CompleteRecord(shard, SpillRowKey(shard, source.position), part.lsn, part.deleted, record);
    entries.push_back({source.position, StoredRecord({reinterpret_cast<const char*>(record),
                                                      shard.record_bytes()})});
  }
  return entries;
}

void PutRows(const SpillShard& shard, absl::Span<const SpillEntry> entries, KvBatch* batch) {
  for (const SpillEntry& entry : entries) {
    batch->Put(View(SpillRowKey(shard, entry.position)), entry.record);
  }
}

// The highest LSN and the journal of these rows are in the memtable, and must be durable before any
// of the rows is.
absl::Status WriteFile(const SpillShard& shard, absl::Span<const SpillEntry> entries,
                       KvStore* store) {
  HOTBED_RETURN_IF_ERROR(store->Flush());
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<KvFile> file, store->NewFile());
  for (const SpillEntry& entry : entries) {
    HOTBED_RETURN_IF_ERROR(file->Add(View(SpillRowKey(shard, entry.position)), entry.record));
  }
  return file->Ingest();
}

}  // namespace

SpillTier::SpillTier(std::string dir, const KvOptions& options, Marks* marks, uint64_t run)
    : dir_(std::move(dir)),
      options_(options),
      marks_(marks),
      run_(run),
      journals_(std::make_unique<RowJournals>()) {}

SpillTier::~SpillTier() = default;

std::string SpillTier::FrozenDir(uint64_t number) const {
  return absl::StrFormat("%s/%s%06d", dir_, std::string(kFrozenPrefix), number);
}

Lsn SpillTier::LsnOf(const uint8_t* record) { return LoadLittle<uint64_t>(record + 1); }

absl::Status SpillTier::Fetch(const SpillShard& shard, absl::Span<const uint64_t> positions,
                              uint8_t* records, uint8_t* found) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  std::vector<SpillKey> keys(positions.size());
  std::vector<absl::string_view> views(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    keys[i] = SpillRowKey(shard, positions[i]);
    views[i] = View(keys[i]);
  }
  std::fill(found, found + positions.size(), kRowNotThere);
  absl::Status damage;
  const absl::Status read = store->MultiGet(views, [&](size_t i, absl::string_view value) {
    if (!damage.ok()) return;
    damage = CheckRecord(shard, positions[i], keys[i], value);
    if (!damage.ok()) return;
    uint8_t* const record = records + i * shard.record_bytes();
    std::memcpy(record, value.data(), value.size());
    found[i] = IsDeleted(record) ? kRowDeleted : kRowThere;
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
  const std::vector<SpillEntry> entries = CompleteInOrder(shard, rows);
  std::vector<uint64_t> positions;
  positions.reserve(entries.size());
  for (const SpillEntry& entry : entries) positions.push_back(entry.position);
  Lsn highest_written = 0;
  for (const SpillRows& part : rows) highest_written = std::max(highest_written, part.lsn);
  const std::unique_ptr<KvBatch> batch = store->NewBatch();
  const bool as_file = entries.size() * shard.record_bytes() >= kWriteFileBytesMin;
  // Otherwise a file of the memtable, and then a compaction, might reach over these rows.
  if (as_file) HOTBED_RETURN_IF_ERROR(store->Flush());
  if (!as_file) PutRows(shard, entries, batch.get());
  PutHighestLsn(shard, highest_lsn, batch.get());
  absl::ReaderMutexLock no_marks_end(&marks_mu_);
  absl::Status written =
      journals_->Add(shard, positions, highest_written, store.get(), batch.get());
  if (written.ok()) written = store->Write(batch.get());
  if (written.ok() && as_file) {
    written = WriteFile(shard, entries, store.get());
    if (absl::IsResourceExhausted(written)) {  // the memtable waits for room, files do not
      batch->Clear();
      PutRows(shard, entries, batch.get());
      written = store->Write(batch.get());
    }
  }
  if (!written.ok()) journals_->Forget(shard.shard);
  return written;
}

absl::StatusOr<bool> SpillTier::HasRows(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  bool any = false;
  HOTBED_RETURN_IF_ERROR(store->Scan(View(FirstRowKey(shard)), RowKeyLimit(shard),
                                     [&](absl::string_view, absl::string_view) {
                                       any = true;
                                       return false;
                                     }));
  return any;
}

absl::StatusOr<std::string> SpillTier::ReadShardValue(const SpillShard& shard, uint16_t slice) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const SpillKey key = MakeSpillKey(shard.shard.table, slice, shard.shard.index);
  const absl::StatusOr<std::string> stored = store->Get(View(key));
  if (absl::IsNotFound(stored.status())) return std::string();
  HOTBED_RETURN_IF_ERROR(stored.status());
  return ParseShardValue(shard, slice, *stored);
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

absl::Status SpillTier::InheritMeta(const SpillShard& parent, const SpillShard& child) {
  HOTBED_ASSIGN_OR_RETURN(const std::string own, ReadMeta(child));
  if (!own.empty()) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const std::string meta, ReadMeta(parent));
  HOTBED_ASSIGN_OR_RETURN(const Lsn highest, HighestLsn(parent));
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  if (!meta.empty()) PutShardValue(child, kMetaSlice, meta, batch.get());
  PutHighestLsn(child, highest, batch.get());
  return store->Write(batch.get());
}

absl::Status SpillTier::ReplaceMeta(const SpillShard& shard, absl::string_view meta, Lsn highest) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  if (meta.empty()) {
    batch->Delete(View(MakeSpillKey(shard.shard.table, kMetaSlice, shard.shard.index)));
    batch->Delete(View(MakeSpillKey(shard.shard.table, kHighestLsnSlice, shard.shard.index)));
  } else {
    PutShardValue(shard, kMetaSlice, meta, batch.get());
    PutHighestLsn(shard, highest, batch.get());
  }
  HOTBED_RETURN_IF_ERROR(RowJournals::Delete(shard, store.get(), batch.get()));
  journals_->Forget(shard.shard);
  return store->Write(batch.get());
}

uint64_t SpillTier::BytesOf(const SpillShard& shard) {
  const absl::StatusOr<std::shared_ptr<KvStore>> store = Use();
  if (!store.ok()) return 0;
  return (*store)->EstimateBytes(View(FirstRowKey(shard)), RowKeyLimit(shard));
}

absl::Status SpillTier::Compact(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  return store->Compact(View(FirstRowKey(shard)), RowKeyLimit(shard));
}

absl::StatusOr<uint64_t> SpillTier::DropMarks(const SpillShard& shard, Lsn through,
                                              absl::FunctionRef<absl::Status()> go_on) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  return MarkWalk(shard, through, store.get(), &marks_mu_).Run(go_on);
}

// Files that hold only rows of the shard, as a snapshot transfer leaves them, are deleted without
// compaction. If those are all of its rows, no tombstone is written: under one, the files of the
// shard's next snapshot could not be ingested at the lowest level.
absl::Status SpillTier::Delete(const SpillShard& shard) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const TableId table = shard.shard.table;
  const SpillKey first = FirstRowKey(shard);
  const std::string limit = RowKeyLimit(shard);
  HOTBED_RETURN_IF_ERROR(store->DeleteFiles(View(first), limit));
  HOTBED_ASSIGN_OR_RETURN(const bool any, HasRows(shard));
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  if (any) batch->DeleteRange(View(first), limit);
  batch->Delete(View(MakeSpillKey(table, kMetaSlice, shard.shard.index)));
  batch->Delete(View(MakeSpillKey(table, kHighestLsnSlice, shard.shard.index)));
  HOTBED_RETURN_IF_ERROR(RowJournals::Delete(shard, store.get(), batch.get()));
  journals_->Forget(shard.shard);
  return store->Write(batch.get());
}

absl::StatusOr<std::unique_ptr<ShardRowReader>> SpillTier::Read(const SpillShard& shard,
                                                                Lsn above) {
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> store, Use());
  return SpillReader::Open(shard, above, std::move(store));
}

absl::StatusOr<std::unique_ptr<ShardRowReader>> SpillTier::ReadLive(const SpillShard& shard,
                                                                    LivePass pass) {
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> store, Use());
  return std::make_unique<LiveReader>(shard, std::move(pass), std::move(store));
}

absl::StatusOr<std::unique_ptr<ShardRowWriter>> SpillTier::NewWriter(
    const SpillShard& shard, uint64_t file_bytes_min,
    std::function<void(const RowBlock&)> written) {
  HOTBED_ASSIGN_OR_RETURN(std::shared_ptr<KvStore> store, Use());
  return std::make_unique<SpillWriter>(shard, std::move(store), file_bytes_min, std::move(written));
}

absl::Status SpillTier::Freeze() {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const std::vector<uint64_t> old = FrozenNumbers(dir_);
  const uint64_t next = old.empty() ? 1 : old.back() + 1;
  // RocksDB builds the snapshot under another name and renames it, so this directory is complete.
  HOTBED_RETURN_IF_ERROR(store->Freeze(FrozenDir(next)));
  if (marks_ != nullptr) {
    HOTBED_ASSIGN_OR_RETURN(const KvState state, KvStateOf(FrozenDir(next)));
    marks_->Set(Marks::kFrozen, {next, state.bytes, state.crc});
  }
  for (uint64_t number : old) {
    std::error_code error;
    std::filesystem::remove_all(FrozenDir(number), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("removing ", FrozenDir(number), ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status SpillTier::RestoreTable(TableId table) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  const std::vector<uint64_t> frozen = FrozenNumbers(dir_);
  HOTBED_RETURN_IF_ERROR(CheckFrozen(frozen));
  journals_->ForgetAll();
  const SpillKey first = MakeSpillKey(table, 0, 0);
  const SpillKey limit = MakeSpillKey(table + 1, 0, 0);  // no table has the id 2^32 - 1
  std::unique_ptr<KvBatch> batch = store->NewBatch();
  batch->DeleteRange(View(first), View(limit));
  HOTBED_RETURN_IF_ERROR(store->Write(batch.get()));
  batch->Clear();
  if (!frozen.empty()) {
    KvOptions options = options_;
    options.dir = FrozenDir(frozen.back());
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
  return Flush();
}

}  // namespace hotbed
