#include "server/tiers/spill/spill_snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/status_macros.h"
#include "server/tiers/spill/row_journal.h"

namespace hotbed {
namespace {

// A call reads so many bytes of records, so that it ends soon where few of them are wanted.
constexpr uint64_t kScanBytesMax = 8ull << 20;
constexpr uint64_t kReadAheadRows = 128;
constexpr size_t kPositionsKept = 4096;
constexpr uint64_t kReadAheadBytes = 1ull << 20;

}  // namespace

absl::Status VisitRowsAt(
    const SpillShard& shard, absl::Span<const uint64_t> positions, KvReads* reads,
    absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit) {
  const uint64_t rows_max =
      std::clamp<uint64_t>(kReadAheadBytes / shard.record_bytes(), 1, kReadAheadRows);
  std::vector<SpillKey> keys;
  std::vector<absl::string_view> views;
  std::vector<std::string> records(rows_max);
  std::vector<bool> found;
  for (size_t first = 0; first < positions.size(); first += rows_max) {
    const size_t count = std::min<size_t>(rows_max, positions.size() - first);
    keys.resize(count);
    views.resize(count);
    found.assign(count, false);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = SpillRowKey(shard, positions[first + i]);
      views[i] = View(keys[i]);
    }
    HOTBED_RETURN_IF_ERROR(reads->MultiGet(views, [&](size_t i, absl::string_view record) {
      records[i].assign(record.data(), record.size());
      found[i] = true;
    }));
    for (size_t i = 0; i < count; ++i) {
      if (found[i] && !visit(views[i], records[i])) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

SpillReader::SpillReader(const SpillShard& shard, Lsn above, std::shared_ptr<KvStore> store)
    : shard_(shard),
      above_(above),
      store_(std::move(store)),
      snapshot_(store_->TakeSnapshot()),
      next_(FirstRowKey(shard)),
      limit_(RowKeyLimit(shard)) {}

absl::StatusOr<std::unique_ptr<SpillReader>> SpillReader::Open(const SpillShard& shard, Lsn above,
                                                               std::shared_ptr<KvStore> store) {
  auto reader = std::unique_ptr<SpillReader>(new SpillReader(shard, above, std::move(store)));
  if (above != 0) {
    HOTBED_ASSIGN_OR_RETURN(reader->positions_,
                            RowJournals::Above(shard, above, shard.first_position, kPositionsKept,
                                               reader->snapshot_.get()));
  }
  reader->bytes_total_ = reader->positions_.has_value()
                             ? reader->positions_->size() * shard.record_bytes()
                             : reader->store_->EstimateBytes(View(reader->next_), reader->limit_);
  return reader;
}

absl::Status SpillReader::Visit(
    absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit) {
  if (!positions_.has_value()) return snapshot_->Scan(View(next_), limit_, visit);
  uint64_t from = LoadBig64(next_.data() + kSpillKeyBytes - 8);
  bool stopped = false;
  for (;;) {
    const auto first = std::lower_bound(positions_->begin(), positions_->end(), from);
    HOTBED_RETURN_IF_ERROR(
        VisitRowsAt(shard_, absl::MakeConstSpan(*positions_).subspan(first - positions_->begin()),
                    snapshot_.get(), [&](absl::string_view key, absl::string_view record) {
                      stopped = !visit(key, record);
                      return !stopped;
                    }));
    if (stopped || positions_->size() < kPositionsKept) return absl::OkStatus();
    from = positions_->back() + 1;
    if (from == 0) return absl::OkStatus();
    // The snapshot's journal is the same as before.
    HOTBED_ASSIGN_OR_RETURN(
        positions_, RowJournals::Above(shard_, above_, from, kPositionsKept, snapshot_.get()));
  }
}

absl::StatusOr<std::string> SpillReader::Next(uint64_t bytes_max) {
  if (at_end_) return std::string();
  RowBlockWriter block(shard_.record_bytes(), sealed_);
  absl::Status damage;
  uint64_t read_bytes = 0;
  at_end_ = true;
  const absl::Status scanned = Visit([&](absl::string_view key, absl::string_view value) {
    SpillKey at;
    std::memcpy(at.data(), key.data(), at.size());
    if (read_bytes >= kScanBytesMax ||
        (block.rows() > 0 && block.bytes() + value.size() > bytes_max)) {
      next_ = at;
      at_end_ = false;
      return false;
    }
    read_bytes += key.size() + value.size();
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
  return block.rows() == 0 && at_end_ ? std::string() : block.Finish();
}

bool SpillReader::Wanted(absl::string_view record) const {
  return above_ == 0 || SpillTier::LsnOf(reinterpret_cast<const uint8_t*>(record.data())) > above_;
}

class SpillWriter::Values {
 public:
  Values(const SpillShard& shard, absl::Span<const uint64_t> positions, const uint8_t* payloads,
         Lsn lsn)
      : shard_(shard),
        positions_(positions),
        payloads_(payloads),
        lsn_(lsn),
        record_(shard.record_bytes()) {}

  size_t rows() const { return positions_.size(); }
  uint64_t position(size_t row) const { return positions_[row]; }
  absl::string_view record(size_t row) const {  // until the next one is asked for
    if (payloads_ != nullptr) {
      std::memcpy(record_.data() + kSpillHeaderBytes, payloads_ + row * shard_.payload_bytes,
                  shard_.payload_bytes);
    }
    CompleteRecord(shard_, SpillRowKey(shard_, positions_[row]), lsn_, payloads_ == nullptr,
                   record_.data());
    return {reinterpret_cast<const char*>(record_.data()), record_.size()};
  }

 private:
  const SpillShard& shard_;
  const absl::Span<const uint64_t> positions_;
  const uint8_t* const payloads_;  // null: the rows are deleted
  const Lsn lsn_;
  mutable std::vector<uint8_t> record_;
};

absl::Status SpillWriter::Write(absl::string_view bytes) {
  HOTBED_RETURN_IF_ERROR(broken_);
  HOTBED_ASSIGN_OR_RETURN(const RowBlock block, RowBlock::Parse(bytes, shard_.record_bytes()));
  if (block.rows() == 0) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(CheckPositions(block));
  HOTBED_RETURN_IF_ERROR(CheckRecords(block));
  for (uint32_t row = 0; row < block.rows(); ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(block.record(row).data());
    highest_ = std::max(highest_, SpillTier::LsnOf(record));
  }
  broken_ = Put(block, bytes.size());
  if (broken_.ok() && written_) written_(block);
  return broken_;
}

absl::Status SpillWriter::WriteValues(absl::Span<const uint64_t> positions, const uint8_t* payloads,
                                      Lsn lsn) {
  return WriteAll(Values(shard_, positions, payloads, lsn), lsn);
}

absl::Status SpillWriter::WriteDeleted(absl::Span<const uint64_t> positions, Lsn lsn) {
  return WriteAll(Values(shard_, positions, nullptr, lsn), lsn);
}

absl::Status SpillWriter::WriteAll(const Values& values, Lsn lsn) {
  HOTBED_RETURN_IF_ERROR(broken_);
  if (values.rows() == 0) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(CheckPositions(values));
  highest_ = std::max(highest_, lsn);
  broken_ = Put(values, values.rows() * (kRowBlockPositionBytes + shard_.record_bytes()));
  return broken_;
}

template <typename Rows>
absl::Status SpillWriter::Put(const Rows& rows, uint64_t bytes) {
  if (file_ != nullptr &&
      (rows.position(0) <= last_position_ || file_->bytes() + bytes > kSnapshotFileBytes)) {
    HOTBED_RETURN_IF_ERROR(EndFile());
  }
  if (file_ == nullptr && bytes < file_bytes_min_) return WriteFew(rows);
  return AddToFile(rows);
}

// Before any of the rows is written.
template <typename Rows>
absl::Status SpillWriter::CheckPositions(const Rows& rows) const {
  for (size_t row = 0; row < rows.rows(); ++row) {
    const uint64_t position = rows.position(row);
    if (position < shard_.first_position || position > shard_.last_position) {
      return absl::InvalidArgumentError(
          absl::StrCat("a block of rows for ", shard_.shard.ToString(), " has position ", position,
                       ", outside of ", shard_.first_position, " to ", shard_.last_position));
    }
    if (row > 0 && position <= rows.position(row - 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a block of rows for ", shard_.shard.ToString(), " has position ", position,
                       " behind ", rows.position(row - 1), "; they must grow"));
    }
  }
  return absl::OkStatus();
}

absl::Status SpillWriter::CheckRecords(const RowBlock& block) const {
  for (uint32_t row = 0; row < block.rows(); ++row) {
    const uint64_t position = block.position(row);
    HOTBED_RETURN_IF_ERROR(
        CheckRecord(shard_, position, SpillRowKey(shard_, position), block.record(row)));
  }
  return absl::OkStatus();
}

template <typename Rows>
absl::Status SpillWriter::WriteFew(const Rows& rows) {
  const std::unique_ptr<KvBatch> batch = store_->NewBatch();
  for (size_t row = 0; row < rows.rows(); ++row) {
    batch->Put(View(SpillRowKey(shard_, rows.position(row))), StoredRecord(rows.record(row)));
  }
  return store_->Write(batch.get());
}

template <typename Rows>
absl::Status SpillWriter::AddToFile(const Rows& rows) {
  if (file_ == nullptr) {
    HOTBED_ASSIGN_OR_RETURN(file_, store_->NewFile());
  }
  for (size_t row = 0; row < rows.rows(); ++row) {
    HOTBED_RETURN_IF_ERROR(
        file_->Add(View(SpillRowKey(shard_, rows.position(row))), StoredRecord(rows.record(row))));
  }
  last_position_ = rows.position(rows.rows() - 1);
  return absl::OkStatus();
}

absl::Status SpillWriter::EndFile() {
  const std::unique_ptr<KvFile> file = std::move(file_);
  return file->Ingest();
}

absl::Status SpillWriter::Finish(absl::string_view meta) {
  HOTBED_RETURN_IF_ERROR(broken_);
  if (file_ != nullptr) HOTBED_RETURN_IF_ERROR(EndFile());
  const std::unique_ptr<KvBatch> batch = store_->NewBatch();
  PutHighestLsn(shard_, highest_, batch.get());
  RowJournals::Begin(shard_, highest_, batch.get());
  PutShardValue(shard_, kMetaSlice, meta, batch.get());
  HOTBED_RETURN_IF_ERROR(store_->Write(batch.get()));
  return store_->Flush();
}

}  // namespace hotbed
