#include "server/tiers/spill/row_journal.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/files/byte_order.h"
#include "common/files/byte_reader.h"
#include "common/status_macros.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {
namespace {

constexpr uint64_t kRowsPerPosition = 16;
constexpr uint64_t kFloor = 0;  // the number of the floor; those of entries begin with 1

struct Entry {
  uint64_t number = kFloor;
  Lsn lsn = 0;  // the highest of its rows, or the floor
  std::vector<uint64_t> positions;
};

SpillKey FirstKey(const SpillShard& shard) {
  return MakeSpillKey(shard.shard.table, kJournalSlice, shard.shard.index);
}
SpillKey KeyLimit(const SpillShard& shard) {
  return MakeSpillKey(shard.shard.table, kJournalSlice, uint64_t{shard.shard.index} + 1);
}
std::string KeyOf(const SpillShard& shard, uint64_t number) {
  std::string key(View(FirstKey(shard)));
  key.resize(kSpillKeyBytes + sizeof(number));
  StoreBig64(key.data() + kSpillKeyBytes, number);
  return key;
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

uint64_t TakeVarint(ByteReader* in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = in->Take<uint8_t>();
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// LSN, then the positions as differences.
void Put(const SpillShard& shard, const Entry& entry, KvBatch* batch) {
  std::string value;
  AppendLittle<uint64_t>(entry.lsn, &value);
  uint64_t last = 0;
  for (const uint64_t position : entry.positions) {
    AppendVarint(position - last, &value);
    last = position;
  }
  const std::string key = KeyOf(shard, entry.number);
  batch->Put(key, SealValue(key, value));
}

absl::StatusOr<Entry> Parse(const SpillShard& shard, absl::string_view key,
                            absl::string_view stored) {
  HOTBED_ASSIGN_OR_RETURN(const absl::string_view value, OpenValue(shard, "journal", key, stored));
  ByteReader in(value);
  Entry entry;
  entry.number = LoadBig64(key.data() + kSpillKeyBytes);
  entry.lsn = in.Take<uint64_t>();
  uint64_t last = 0;
  while (in.left() > 0) {
    last += TakeVarint(&in);
    entry.positions.push_back(last);
  }
  if (in.ok()) return entry;
  return absl::DataLossError(
      absl::StrCat(shard.shard.ToString(), ": entry ", entry.number, " of its journal is cut"));
}

// The floor, if there is one, and the entries, oldest first.
absl::Status Read(const SpillShard& shard, KvReads* store,
                  absl::FunctionRef<bool(Entry entry)> visit) {
  absl::Status status;
  const absl::Status scanned = store->Scan(View(FirstKey(shard)), View(KeyLimit(shard)),
                                           [&](absl::string_view key, absl::string_view value) {
                                             absl::StatusOr<Entry> entry = Parse(shard, key, value);
                                             status = entry.status();
                                             return status.ok() && visit(*std::move(entry));
                                           });
  return status.ok() ? scanned : status;
}

absl::StatusOr<Lsn> HighestOf(const SpillShard& shard, KvStore* store) {
  const SpillKey key = MakeSpillKey(shard.shard.table, kHighestLsnSlice, shard.shard.index);
  const absl::StatusOr<std::string> stored = store->Get(View(key));
  if (absl::IsNotFound(stored.status())) return 0;
  HOTBED_RETURN_IF_ERROR(stored.status());
  HOTBED_ASSIGN_OR_RETURN(const std::string value,
                          ParseShardValue(shard, kHighestLsnSlice, *stored));
  return ByteReader(value).Take<uint64_t>();
}

}  // namespace

absl::Status RowJournals::Add(const SpillShard& shard, absl::Span<const uint64_t> positions,
                              Lsn lsn, KvStore* store, KvBatch* batch) {
  std::shared_ptr<Journal> journal;
  {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<Journal>& kept = journals_[shard.shard];
    if (kept == nullptr) kept = std::make_shared<Journal>();
    journal = kept;
  }
  if (!journal->known) HOTBED_RETURN_IF_ERROR(Load(shard, store, batch, journal.get()));
  if (journal->positions > journal->positions_max) {
    HOTBED_RETURN_IF_ERROR(Shorten(shard, store, batch, journal.get()));
  }
  Put(shard, {journal->next++, lsn, {positions.begin(), positions.end()}}, batch);
  journal->positions += positions.size();
  return absl::OkStatus();
}

absl::Status RowJournals::Load(const SpillShard& shard, KvStore* store, KvBatch* batch,
                               Journal* journal) {
  Journal found;
  bool begun = false;
  HOTBED_RETURN_IF_ERROR(Read(shard, store, [&](const Entry& entry) {
    begun = begun || entry.number == kFloor;
    found.next = entry.number + 1;
    found.positions += entry.positions.size();
    return true;
  }));
  if (!begun) {
    HOTBED_ASSIGN_OR_RETURN(const Lsn highest, HighestOf(shard, store));
    Begin(shard, highest, batch);
  }
  found.known = true;
  *journal = found;
  return absl::OkStatus();
}

absl::Status RowJournals::Shorten(const SpillShard& shard, KvStore* store, KvBatch* batch,
                                  Journal* journal) {
  const uint64_t rows = store->EstimateBytes(View(FirstRowKey(shard)), RowKeyLimit(shard)) /
                        (kSpillKeyBytes + shard.record_bytes());
  journal->positions_max =
      std::clamp(rows / kRowsPerPosition, kJournalPositionsMin, kJournalPositionsMax);
  if (journal->positions <= journal->positions_max) return absl::OkStatus();
  std::vector<Entry> entries;
  HOTBED_RETURN_IF_ERROR(Read(shard, store, [&](Entry entry) {
    entries.push_back(std::move(entry));
    return true;
  }));
  absl::flat_hash_set<uint64_t> kept;
  Lsn floor = 0;
  bool full = false;
  for (size_t i = entries.size(); i-- > 0;) {
    Entry& entry = entries[i];
    const size_t before = entry.positions.size();
    if (!full) {
      std::erase_if(entry.positions, [&](uint64_t position) { return kept.contains(position); });
      full = kept.size() + entry.positions.size() > journal->positions_max / 2;
    }
    if (full || entry.number == kFloor) {
      floor = std::max(floor, entry.lsn);
      entry.positions.clear();
    }
    kept.insert(entry.positions.begin(), entry.positions.end());
    if (entry.positions.empty()) {
      batch->Delete(KeyOf(shard, entry.number));
    } else if (entry.positions.size() < before) {
      Put(shard, entry, batch);
    }
  }
  Begin(shard, floor, batch);
  journal->positions = kept.size();
  return absl::OkStatus();
}

void RowJournals::Begin(const SpillShard& shard, Lsn floor, KvBatch* batch) {
  Put(shard, {kFloor, floor, {}}, batch);
}

absl::Status RowJournals::Delete(const SpillShard& shard, KvReads* store, KvBatch* batch) {
  const SpillKey first = FirstKey(shard);
  const SpillKey limit = KeyLimit(shard);
  bool any = false;
  HOTBED_RETURN_IF_ERROR(
      store->Scan(View(first), View(limit), [&](absl::string_view, absl::string_view) {
        any = true;
        return false;
      }));
  if (any) batch->DeleteRange(View(first), View(limit));
  return absl::OkStatus();
}

void RowJournals::Forget(ShardId shard) {
  absl::MutexLock lock(&mu_);
  journals_.erase(shard);
}

void RowJournals::ForgetAll() {
  absl::MutexLock lock(&mu_);
  journals_.clear();
}

absl::StatusOr<std::optional<std::vector<uint64_t>>> RowJournals::Above(const SpillShard& shard,
                                                                        Lsn above, uint64_t from,
                                                                        uint64_t positions_max,
                                                                        KvReads* store) {
  from = std::max(from, shard.first_position);
  std::optional<std::vector<uint64_t>> positions;
  HOTBED_RETURN_IF_ERROR(Read(shard, store, [&](const Entry& entry) {
    if (entry.number == kFloor && entry.lsn <= above) positions.emplace();
    if (!positions.has_value()) return false;
    if (entry.lsn <= above) return true;
    for (const uint64_t position : entry.positions) {
      if (position >= from && position <= shard.last_position) positions->push_back(position);
    }
    return true;
  }));
  if (!positions.has_value()) return positions;
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
  if (positions->size() > positions_max) {
    positions->resize(positions_max);
    positions->shrink_to_fit();
  }
  return positions;
}

}  // namespace hotbed
