#include "server/export/checkpoint_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore_rules.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "server/export/array_source.h"
#include "server/protocol/session_table.h"

namespace hotbed {
namespace {

// The sessions of several shards as those of one, if they agree.
class JoinedSessions {
 public:
  absl::Status Add(const std::string& bytes) {
    SessionTable table;
    if (!bytes.empty()) {
      ByteReader in(bytes);
      HOTBED_ASSIGN_OR_RETURN(table, SessionTable::TakeFrom(&in));
    }
    if (!any_) {
      any_ = true;
      joined_ = std::move(table);
      return absl::OkStatus();
    }
    if (joined_ == table) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "its sessions cannot go on: the shard takes its rows from several shards of the "
        "checkpoint, which were saved between two pushes of a session. Restore with as many shards "
        "as were saved, or begin the sessions anew with --sessions=anew");
  }
  std::string bytes() const {
    std::string out;
    if (joined_.size() > 0) joined_.AppendTo(&out);
    return out;
  }

 private:
  bool any_ = false;
  SessionTable joined_;
};

constexpr int64_t kManifestNsMax = 30 * kSecondNs;
constexpr size_t kManifestsMax = 2 * (kGenerationsMax + 1);

// Parts of a saved shard that a new one begins with. Rows may come from a parent of the checkpoint
// that has the others.
enum class Takes { kRows, kRowsAndFilter, kSessionsToo };

class FileRows : public RowSource::Rows {
 public:
  FileRows(const TableSpec& saved, const TableSpec& wanted, const ShardRange& range)
      : hashed_(wanted.hashed),
        saved_type_(saved.weight_type),
        wanted_type_(wanted.weight_type),
        columns_(range.column_limit - range.column_first),
        state_bytes_(StateBytes(wanted.optimizer, columns_)),
        first_(range.first_position(hashed_)),
        last_(range.last_position(hashed_)) {}

  // Rows of `part` alone.
  absl::Status Add(const std::string& folder, const v1::CheckpointShard& shard,
                   const ShardRange& part, Takes takes, Place* place) {
    Part added = {nullptr, std::max(first_, part.first_position(hashed_)),
                  std::min(last_, part.last_position(hashed_))};
    HOTBED_ASSIGN_OR_RETURN(
        added.file, RowsFileReader::Open(absl::StrCat(folder, "/", shard.file()), shard.bytes(),
                                         shard.index_crc(), place));
    const std::unique_ptr<RowsFileReader>& file = added.file;
    const uint32_t weights = BytesPerWeight(saved_type_) * columns_;
    if (!(file->header() ==
          RowsFileHeader{hashed_, weights, weights + state_bytes_, file->header().compressed})) {
      return absl::DataLossError(
          absl::StrCat(folder, "/", shard.file(), ": its rows are not those of the table"));
    }
    for (const RowsFileEntry& entry : file->index()) {
      if (Overlaps(entry, added)) bytes_total_ += file->PlainBytes(entry);
    }
    if (takes == Takes::kSessionsToo) {
      HOTBED_ASSIGN_OR_RETURN(const std::string bytes, file->ReadSessions());
      HOTBED_RETURN_IF_ERROR(sessions_.Add(bytes));
      forgotten_ = std::max(forgotten_, shard.forgotten());
    }
    if (takes != Takes::kRows) {
      HOTBED_ASSIGN_OR_RETURN(const std::string bytes, file->ReadTouchFilter());
      touch_filter_ += bytes;
    }
    compressed_ |= file->header().compressed;
    parts_.push_back(std::move(added));
    // One part is read at a time.
    ahead_bytes_ = place->reader_bytes() + (compressed_ ? kPackerBytes : 0);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(std::vector<uint64_t>* positions,
                            std::vector<uint8_t>* payloads) override {
    while (part_ < parts_.size()) {
      const Part& part = parts_[part_];
      RowsFileReader& file = *part.file;
      if (block_ == file.index().size()) {
        parts_[part_++].file.reset();  // with what it has read ahead
        block_ = 0;
        continue;
      }
      const RowsFileEntry& entry = file.index()[block_++];
      if (!Overlaps(entry, part)) continue;
      HOTBED_RETURN_IF_ERROR(file.ReadRows(entry, &ids_, &saved_));
      if (entry.kind == RowsFileBlock::kDeleted) {
        TakeDeleted(part, positions, payloads);
      } else if (saved_type_ == wanted_type_ && IsWithin(entry, part)) {
        Take(positions, payloads);
      } else {
        Convert(part, positions, payloads);
      }
      return true;
    }
    return false;
  }
  uint64_t bytes_total() const override { return bytes_total_; }
  uint64_t ahead_bytes() const override { return ahead_bytes_; }
  std::string sessions() const override { return sessions_.bytes(); }
  Incarnation forgotten() const override { return forgotten_; }
  std::string touch_filter() const override { return touch_filter_; }

 private:
  struct Part {
    std::unique_ptr<RowsFileReader> file;
    uint64_t first = 0;  // positions, both inclusive
    uint64_t last = 0;
  };

  static bool Overlaps(const RowsFileEntry& entry, const Part& part) {
    return HoldsRows(entry.kind) && entry.first_position <= part.last &&
           entry.last_position >= part.first;
  }

  static bool IsWithin(const RowsFileEntry& entry, const Part& part) {
    return entry.first_position >= part.first && entry.last_position <= part.last;
  }

  // The rows of the block as they are.
  void Take(std::vector<uint64_t>* positions, std::vector<uint8_t>* payloads) {
    positions->swap(ids_);
    payloads->swap(saved_);
    if (!hashed_) return;
    for (uint64_t& position : *positions) position = Mix64(position);
  }

  void TakeDeleted(const Part& part, std::vector<uint64_t>* positions,
                   std::vector<uint8_t>* payloads) const {
    positions->clear();
    payloads->clear();
    for (const uint64_t id : ids_) {
      const uint64_t position = hashed_ ? Mix64(id) : id;
      if (position >= part.first && position <= part.last) positions->push_back(position);
    }
  }

  // The rows of the block that lie in the part, in the weight type that is wanted.
  void Convert(const Part& part, std::vector<uint64_t>* positions, std::vector<uint8_t>* payloads) {
    const uint32_t saved_weights = BytesPerWeight(saved_type_) * columns_;
    const uint32_t saved_bytes = saved_weights + state_bytes_;
    const uint32_t weight_bytes = BytesPerWeight(wanted_type_);
    const uint32_t row_bytes = weight_bytes * columns_ + state_bytes_;
    positions->clear();
    payloads->resize(ids_.size() * row_bytes);
    for (size_t row = 0; row < ids_.size(); ++row) {
      const uint64_t position = hashed_ ? Mix64(ids_[row]) : ids_[row];
      if (position < part.first || position > part.last) continue;
      const uint8_t* const from = saved_.data() + row * saved_bytes;
      uint8_t* const to = payloads->data() + positions->size() * row_bytes;
      positions->push_back(position);
      if (saved_type_ == wanted_type_) {
        std::memcpy(to, from, row_bytes);
        continue;
      }
      for (uint32_t column = 0; column < columns_; ++column) {
        StoreWeight(LoadWeight(from + column * BytesPerWeight(saved_type_), saved_type_),
                    wanted_type_, to + column * weight_bytes);
      }
      std::memcpy(to + weight_bytes * columns_, from + saved_weights, state_bytes_);
    }
    payloads->resize(positions->size() * row_bytes);
  }

  const bool hashed_;
  const WeightType saved_type_;
  const WeightType wanted_type_;
  const uint32_t columns_;
  const uint32_t state_bytes_;
  const uint64_t first_;  // positions, both inclusive
  const uint64_t last_;
  std::vector<Part> parts_;
  JoinedSessions sessions_;
  Incarnation forgotten_ = 0;
  std::string touch_filter_;
  uint64_t bytes_total_ = 0;
  uint64_t ahead_bytes_ = 0;
  bool compressed_ = false;
  size_t part_ = 0;
  size_t block_ = 0;
  std::vector<uint64_t> ids_;
  std::vector<uint8_t> saved_;
};

using Manifest = std::shared_ptr<const v1::CheckpointManifest>;

// The saved shards that have rows of `range`, in the order in which a later row replaces an earlier
// one: where a shard was saved without the rows that had not changed, its parent's come first.
absl::Status AddParts(
    const std::string& folder, const std::string& table, const ShardRange& range, Takes takes,
    absl::FunctionRef<absl::StatusOr<Manifest>(const std::string& folder)> manifest_of,
    Place* place, FileRows* rows) {
  HOTBED_ASSIGN_OR_RETURN(const Manifest manifest, manifest_of(folder));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const found, FindTable(*manifest, table));
  for (const v1::CheckpointShard& shard : found->shards()) {
    const bool same_columns =
        shard.column_first() == range.column_first && shard.column_limit() == range.column_limit;
    if (!same_columns || shard.range_first() >= range.limit || shard.range_limit() <= range.first) {
      continue;
    }
    ShardRange part = range;
    part.first = std::max(part.first, shard.range_first());
    part.limit = std::min(part.limit, shard.range_limit());
    if (shard.above_lsn() != 0) {
      HOTBED_RETURN_IF_ERROR(AddParts(ParentOf(folder, *manifest), table, part, Takes::kRows,
                                      manifest_of, place, rows));
    }
    HOTBED_RETURN_IF_ERROR(rows->Add(folder, shard, part, takes, place));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointSource::Manifest> CheckpointSource::ManifestOf(const std::string& folder,
                                                                        Place* place) {
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = clock_.NowNs();
  const auto kept = kept_.find(folder);
  if (kept != kept_.end() && now_ns - kept->second.read_ns < kManifestNsMax) {
    return kept->second.manifest;
  }
  HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(folder, place));
  if (kept_.size() >= kManifestsMax) kept_.clear();
  const auto read = std::make_shared<const v1::CheckpointManifest>(std::move(manifest));
  kept_[folder] = {read, now_ns};
  return Manifest(read);
}

absl::StatusOr<std::unique_ptr<RowSource::Rows>> CheckpointSource::Open(const TableSpec& table,
                                                                        const ShardRange& range) {
  const RestoredFrom& from = table.restored_from;
  HOTBED_ASSIGN_OR_RETURN(Place* const place, places_->Of(from.checkpoint));
  HOTBED_ASSIGN_OR_RETURN(const Manifest manifest, ManifestOf(from.checkpoint, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const found, FindTable(*manifest, from.table));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec saved, FromProto(found->spec()));
  HOTBED_RETURN_IF_ERROR(CheckRestorable(saved, table));
  if (found->has_arrays()) return OpenArrayRows(from.checkpoint, found->arrays(), table, range);
  auto rows = std::make_unique<FileRows>(saved, table, range);
  HOTBED_RETURN_IF_ERROR(AddParts(
      from.checkpoint, from.table, range,
      from.sessions ? Takes::kSessionsToo : Takes::kRowsAndFilter,
      [&](const std::string& folder) { return ManifestOf(folder, place); }, place, rows.get()));
  return rows;
}

}  // namespace hotbed
