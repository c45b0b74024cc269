#include "checkpoint/table_arrays.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/npy_file.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/initializer.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kImportShardBytes = 64ull << 20;
constexpr uint64_t kImportBlockBytes = 1ull << 20;
constexpr uint64_t kManyShardsFrom = 1ull << 20;  // bytes

absl::Status Told(const OnArrayProgress& progress, uint64_t done, uint64_t rows) {
  if (progress(done, rows)) return absl::OkStatus();
  return absl::CancelledError("it was broken off");
}

std::string NpyTypeOf(WeightType type) { return type == WeightType::kFp16 ? "<f2" : "<f4"; }
// In an array.
WeightType ArrayTypeOf(WeightType type) {
  return type == WeightType::kFp16 ? WeightType::kFp16 : WeightType::kFp32;
}

// --- export

class TableExport {
 public:
  TableExport(const std::string& folder, const v1::CheckpointTable& table, const TableSpec& spec,
              FileSystem* files, const OnArrayProgress& progress)
      : folder_(folder),
        spec_(spec),
        type_(ArrayTypeOf(spec.weight_type)),
        files_(*files),
        progress_(progress) {
    for (const v1::CheckpointShard& shard : table.shards()) {
      ranges_[shard.range_first()].push_back(&shard);
    }
  }

  absl::StatusOr<uint64_t> Write(const std::string& rows_path, const std::string& ids_path) {
    HOTBED_ASSIGN_OR_RETURN(rows_, CountRows());
    HOTBED_ASSIGN_OR_RETURN(
        array_, NpyFile::Create(rows_path, {NpyTypeOf(spec_.weight_type), rows_, spec_.dim}));
    if (spec_.hashed) {
      auto ids = NpyFile::Create(ids_path, {"<u8", rows_, 0});
      if (!ids.ok()) {
        unlink(rows_path.c_str());
        return ids.status();
      }
      ids_ = *std::move(ids);
    }
    const absl::Status written = WriteRanges();
    if (written.ok()) return rows_;
    unlink(rows_path.c_str());
    if (spec_.hashed) unlink(ids_path.c_str());
    return written;
  }

 private:
  using Shards = std::vector<const v1::CheckpointShard*>;  // of one range, by slice

  absl::StatusOr<std::unique_ptr<RowsFileReader>> Open(const v1::CheckpointShard& shard) const {
    return RowsFileReader::Open(absl::StrCat(folder_, "/", shard.file()), shard.bytes(),
                                shard.index_crc(), &files_);
  }
  // visit(ids, payloads) for each block, in order of passes.
  template <typename Visit>
  absl::Status ForEachBlock(const v1::CheckpointShard& shard, Visit visit) const {
    HOTBED_ASSIGN_OR_RETURN(const auto file, Open(shard));
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    for (const RowsFileEntry& entry : file->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      HOTBED_RETURN_IF_ERROR(file->ReadRows(entry, &ids, &payloads));
      visit(ids, payloads);
    }
    return absl::OkStatus();
  }
  // The positions of a range that any slice has a row of.
  absl::StatusOr<std::vector<uint64_t>> PositionsOf(const Shards& shards) const {
    std::vector<uint64_t> positions;
    for (const v1::CheckpointShard* shard : shards) {
      HOTBED_RETURN_IF_ERROR(
          ForEachBlock(*shard, [&](const std::vector<uint64_t>& ids, const std::vector<uint8_t>&) {
            for (const uint64_t id : ids) positions.push_back(Mix64(id));
          }));
    }
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    return positions;
  }
  absl::StatusOr<uint64_t> CountRows() const {
    if (!spec_.hashed) return spec_.rows;
    uint64_t rows = 0;
    for (const auto& [first, shards] : ranges_) {
      HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, PositionsOf(shards));
      rows += positions.size();
    }
    return rows;
  }

  absl::Status WriteRanges() {
    uint64_t done = 0;
    for (const auto& [first, shards] : ranges_) {
      std::vector<uint64_t> positions;
      uint64_t count = shards.front()->range_limit() - first;
      if (spec_.hashed) {
        HOTBED_ASSIGN_OR_RETURN(positions, PositionsOf(shards));
        count = positions.size();
      }
      const auto id_of = [&](uint64_t i) {
        return spec_.hashed ? Unmix64(positions[i]) : first + i;
      };
      const auto index_of = [&](uint64_t id) -> uint64_t {
        if (!spec_.hashed) return id - first;
        return std::lower_bound(positions.begin(), positions.end(), Mix64(id)) - positions.begin();
      };
      for (const v1::CheckpointShard* shard : shards) {
        std::vector<bool> there(count);
        HOTBED_RETURN_IF_ERROR(ForEachBlock(
            *shard, [&](const std::vector<uint64_t>& ids, const std::vector<uint8_t>& payloads) {
              const size_t bytes = payloads.size() / ids.size();
              for (size_t k = 0; k < ids.size(); ++k) {
                const uint64_t index = index_of(ids[k]);
                there[index] = true;
                PutRow(done + index, ids[k], *shard, payloads.data() + k * bytes);
              }
            }));
        for (uint64_t i = 0; i < count; ++i) {
          if (!there[i]) FillRow(done + i, id_of(i), *shard);
        }
      }
      for (uint64_t i = 0; ids_ != nullptr && i < count; ++i) {
        const uint64_t id = id_of(i);
        std::memcpy(ids_->data() + (done + i) * sizeof(id), &id, sizeof(id));
      }
      done += count;
      HOTBED_RETURN_IF_ERROR(Told(progress_, done, rows_));
    }
    if (ids_ != nullptr) HOTBED_RETURN_IF_ERROR(ids_->Sync());
    return array_->Sync();
  }

  bool IsPadding(uint64_t id) const { return spec_.has_padding_id && id == spec_.padding_id; }
  uint8_t* At(uint64_t row, uint32_t column) const {
    return array_->data() + (row * spec_.dim + column) * BytesPerWeight(type_);
  }
  void Put(uint64_t row, uint32_t column, float weight) {
    StoreWeight(weight, type_, At(row, column));
  }

  // The first values of the shard's columns.
  void FillRow(uint64_t row, uint64_t id, const v1::CheckpointShard& shard) {
    if (IsPadding(id)) return;  // zeros
    const uint32_t columns = shard.column_limit() - shard.column_first();
    first_.resize(columns);
    InitialRow(spec_.initializer, spec_.seed, id, shard.column_first(), columns, first_.data());
    for (uint32_t k = 0; k < columns; ++k) {
      uint8_t stored[sizeof(float)];
      StoreWeight(first_[k], spec_.weight_type, stored);
      Put(row, shard.column_first() + k, LoadWeight(stored, spec_.weight_type));
    }
  }
  void PutRow(uint64_t row, uint64_t id, const v1::CheckpointShard& shard, const uint8_t* payload) {
    if (IsPadding(id)) return;
    const uint32_t columns = shard.column_limit() - shard.column_first();
    const uint32_t bytes = BytesPerWeight(spec_.weight_type);
    if (type_ == spec_.weight_type) {
      std::memcpy(At(row, shard.column_first()), payload, columns * bytes);
      return;
    }
    for (uint32_t k = 0; k < columns; ++k) {
      Put(row, shard.column_first() + k, LoadWeight(payload + k * bytes, spec_.weight_type));
    }
  }

  const std::string folder_;
  const TableSpec& spec_;
  const WeightType type_;
  FileSystem& files_;
  const OnArrayProgress& progress_;
  std::map<uint64_t, Shards> ranges_;
  uint64_t rows_ = 0;
  std::unique_ptr<NpyFile> array_;
  std::unique_ptr<NpyFile> ids_;
  std::vector<float> first_;
};

// --- import

absl::Status Refused(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

WeightType ElementsOf(const NpyFile& array) {
  return array.array().type == "<f2" ? WeightType::kFp16 : WeightType::kFp32;
}

absl::Status CheckRows(const std::string& path, const NpyFile& array, TableSpec* spec) {
  const NpyArray& has = array.array();
  if (has.columns == 0 || has.type.substr(0, 2) != "<f") {
    return Refused(path,
                   absl::StrCat("it has ", has.columns == 0 ? "one dimension" : "two dimensions",
                                " of '", has.type, "'; allowed: rows x dim of '<f4' or '<f2'"));
  }
  if (spec->dim == 0) spec->dim = static_cast<uint32_t>(std::min<uint64_t>(has.columns, ~0u));
  if (has.columns != spec->dim) {
    return Refused(
        path, absl::StrCat("it has ", has.columns, " columns, the table's dim is ", spec->dim));
  }
  if (!spec->hashed && spec->rows == 0) spec->rows = has.rows;
  if (!spec->hashed && has.rows != spec->rows) {
    return Refused(path,
                   absl::StrCat("it has ", has.rows, " rows, the table's rows are ", spec->rows));
  }
  if (spec->nan_policy == NanPolicy::kAllow) return absl::OkStatus();
  const WeightType type = ElementsOf(array);
  const uint64_t count = has.rows * has.columns;
  for (uint64_t i = 0; i < count; ++i) {
    // As the table will hold it: a finite number may be too large for its weights.
    uint8_t stored[sizeof(float)];
    const float given = LoadWeight(array.data() + i * array.item_bytes(), type);
    StoreWeight(given, spec->weight_type, stored);
    const float weight = LoadWeight(stored, spec->weight_type);
    if (std::isfinite(weight)) continue;
    return Refused(
        path, absl::StrCat("row ", i / has.columns, ", column ", i % has.columns, " is ", weight,
                           "; allowed: finite weights, unless the table's nan "
                           "policy is allow"));
  }
  return absl::OkStatus();
}

// Where each row of the arrays goes: by position.
using Places = std::vector<std::pair<uint64_t, uint64_t>>;  // position, row

absl::StatusOr<Places> PlacesOf(const std::string& path, const NpyFile& ids) {
  Places places(ids.array().rows);
  for (uint64_t row = 0; row < places.size(); ++row) {
    uint64_t id;
    std::memcpy(&id, ids.data() + row * sizeof(id), sizeof(id));
    places[row] = {Mix64(id), row};
  }
  std::sort(places.begin(), places.end());
  const auto twice =
      std::adjacent_find(places.begin(), places.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == places.end()) return places;
  return Refused(path, absl::StrCat("id ", Unmix64(twice->first), " occurs twice, in rows ",
                                    twice->second, " and ", (twice + 1)->second));
}

absl::StatusOr<std::unique_ptr<NpyFile>> OpenIds(const std::string& path, uint64_t rows) {
  HOTBED_ASSIGN_OR_RETURN(auto ids, NpyFile::Open(path));
  const NpyArray& has = ids->array();
  if (has.columns == 0 && ids->item_bytes() == 8 && has.rows == rows) return ids;
  return Refused(
      path, absl::StrCat("it has ", has.rows, " elements of '", has.type, "' in ",
                         has.columns == 0 ? "one dimension" : "two dimensions", "; allowed: ", rows,
                         ", one per row, of '<u8' or '<i8' in one"));
}

class TableImport {
 public:
  TableImport(const TableSpec& spec, const NpyFile& rows, Places places, FileSystem* files,
              const OnArrayProgress& progress)
      : spec_(spec),
        array_(rows),
        places_(std::move(places)),
        files_(*files),
        progress_(progress) {}

  absl::Status Write(const std::string& folder, v1::CheckpointTable* table) {
    *table->mutable_spec() = ToProto(spec_);
    const uint64_t bytes =
        array_.array().rows * (spec_.weight_bytes_per_row() + spec_.state_bytes_per_row());
    const uint64_t end = spec_.hashed ? kBuckets : spec_.rows;
    uint64_t ranges = std::max<uint64_t>(bytes / kImportShardBytes, 1);
    if (bytes > kManyShardsFrom) ranges = std::max<uint64_t>(ranges, kShardsPerTableMin);
    ranges = std::min({ranges, end, uint64_t{kShardsPerTableMax} / spec_.column_slices});
    for (uint32_t slice = 0; slice < spec_.column_slices; ++slice) {
      const ColumnRange columns = SliceColumns(spec_.dim, spec_.column_slices, slice);
      for (uint64_t i = 0; i < ranges; ++i) {
        v1::CheckpointShard& shard = *table->add_shards();
        shard.set_index(static_cast<uint32_t>(table->shards_size() - 1));
        shard.set_range_first(static_cast<uint64_t>(static_cast<__uint128_t>(end) * i / ranges));
        shard.set_range_limit(
            static_cast<uint64_t>(static_cast<__uint128_t>(end) * (i + 1) / ranges));
        shard.set_column_first(columns.first);
        shard.set_column_limit(columns.limit);
        shard.set_file(absl::StrCat("import-", shard.index(), ".rows"));
        HOTBED_RETURN_IF_ERROR(WriteShard(folder, &shard));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WriteShard(const std::string& folder, v1::CheckpointShard* shard) {
    const uint32_t columns = shard->column_limit() - shard->column_first();
    const uint32_t weights = BytesPerWeight(spec_.weight_type) * columns;
    const uint32_t payload = weights + StateBytes(spec_.optimizer, columns);
    HOTBED_ASSIGN_OR_RETURN(const auto file,
                            RowsFileWriter::Create(absl::StrCat(folder, "/", shard->file()),
                                                   {spec_.hashed, weights, payload}, &files_));
    file->BeginPass();
    const ShardRange range = {shard->range_first(), shard->range_limit(), 0, 0};
    const uint64_t first = range.first_position(spec_.hashed);
    const uint64_t last = range.last_position(spec_.hashed);
    std::vector<uint8_t> state(payload - weights);
    FirstState(spec_.optimizer, columns, state.data());
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    const auto begin =
        std::lower_bound(places_.begin(), places_.end(), std::pair(first, uint64_t{0}));
    uint64_t at = spec_.hashed ? static_cast<uint64_t>(begin - places_.begin()) : first;
    const uint64_t rows = array_.array().rows;
    for (; at < rows && (spec_.hashed ? places_[at].first : at) <= last; ++at) {
      ids.push_back(spec_.hashed ? Unmix64(places_[at].first) : at);
      payloads.resize(payloads.size() + payload);
      uint8_t* const to = payloads.data() + payloads.size() - payload;
      PutWeights(spec_.hashed ? places_[at].second : at, shard->column_first(), columns, to);
      std::copy(state.begin(), state.end(), to + weights);
      if (payloads.size() < kImportBlockBytes) continue;
      HOTBED_RETURN_IF_ERROR(file->AddRows(ids, payloads));
      done_ += ids.size();
      HOTBED_RETURN_IF_ERROR(Told(progress_, done_, rows * spec_.column_slices));
      ids.clear();
      payloads.clear();
    }
    HOTBED_RETURN_IF_ERROR(file->AddRows(ids, payloads));
    done_ += ids.size();
    HOTBED_RETURN_IF_ERROR(file->Finish());
    shard->set_bytes(file->bytes());
    shard->set_rows(file->rows());
    shard->set_passes(1);
    shard->set_index_crc(file->index_crc());
    return absl::OkStatus();
  }

  void PutWeights(uint64_t row, uint32_t column, uint32_t columns, uint8_t* to) const {
    const WeightType type = ElementsOf(array_);
    const uint8_t* const from = array_.data() + (row * spec_.dim + column) * array_.item_bytes();
    const uint32_t bytes = BytesPerWeight(spec_.weight_type);
    if (type == spec_.weight_type) {
      std::memcpy(to, from, columns * bytes);
      return;
    }
    for (uint32_t k = 0; k < columns; ++k) {
      StoreWeight(LoadWeight(from + k * array_.item_bytes(), type), spec_.weight_type,
                  to + k * bytes);
    }
  }

  const TableSpec& spec_;
  const NpyFile& array_;
  const Places places_;  // of a hashed table
  FileSystem& files_;
  const OnArrayProgress& progress_;
  uint64_t done_ = 0;
};

}  // namespace

absl::Status CheckIdsFile(const TableSpec& spec, const std::string& ids_path) {
  if (spec.hashed != ids_path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", spec.name, "\": ",
      spec.hashed ? "it is hashed: the ids of its rows have a file of their own; name it with --ids"
                  : "it is bounded: row i is that of id i; leave --ids out"));
}

absl::StatusOr<uint64_t> ExportTable(const std::string& folder, const v1::CheckpointTable& table,
                                     const std::string& rows_path, const std::string& ids_path,
                                     FileSystem* files, const OnArrayProgress& progress) {
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(table.spec()));
  HOTBED_RETURN_IF_ERROR(CheckIdsFile(spec, ids_path));
  return TableExport(folder, table, spec, files, progress).Write(rows_path, ids_path);
}

absl::Status CheckArrays(const std::string& rows_path, const std::string& ids_path,
                         TableSpec* spec) {
  HOTBED_RETURN_IF_ERROR(CheckIdsFile(*spec, ids_path));
  HOTBED_ASSIGN_OR_RETURN(const auto rows, NpyFile::Open(rows_path));
  HOTBED_RETURN_IF_ERROR(CheckRows(rows_path, *rows, spec));
  if (ids_path.empty()) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const auto ids, OpenIds(ids_path, rows->array().rows));
  return PlacesOf(ids_path, *ids).status();
}

absl::StatusOr<std::string> ImportTable(const std::string& rows_path, const std::string& ids_path,
                                        const TableSpec& spec, const std::string& directory,
                                        const std::string& name, FileSystem* files,
                                        const OnArrayProgress& progress) {
  HOTBED_ASSIGN_OR_RETURN(const auto rows, NpyFile::Open(rows_path));
  Places places;
  if (spec.hashed) {
    HOTBED_ASSIGN_OR_RETURN(const auto ids, OpenIds(ids_path, rows->array().rows));
    HOTBED_ASSIGN_OR_RETURN(places, PlacesOf(ids_path, *ids));
  }
  v1::CheckpointManifest manifest;
  manifest.set_format(kCheckpointFormat);
  manifest.set_name(name);
  manifest.set_begun_unix_ms(absl::ToUnixMillis(absl::Now()));
  HOTBED_ASSIGN_OR_RETURN(const std::string folder,
                          MakeCheckpointFolder(directory, name, manifest.begun_unix_ms(), files));
  absl::Status written = TableImport(spec, *rows, std::move(places), files, progress)
                             .Write(folder, manifest.add_tables());
  if (written.ok()) written = files->SyncDir(folder);
  manifest.set_ended_unix_ms(absl::ToUnixMillis(absl::Now()));
  if (written.ok()) written = WriteManifest(folder, manifest, files);
  if (written.ok()) written = files->Delete(absl::StrCat(folder, "/", kSavingFile));
  if (written.ok()) return folder;
  (void)DeleteCheckpoint(folder, files);
  return written;
}

}  // namespace hotbed
