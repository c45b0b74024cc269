#include "serving/version_files.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/gone_rows.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

absl::Status CheckTable(const std::string& folder, const v1::CheckpointManifest& manifest,
                        const v1::CheckpointTable& table, const v1::TableSpec& spec) {
  if (!manifest.parent().empty() || table.has_arrays()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, " needs other files: a version is a checkpoint of all rows ('hotbed publish')"));
  }
  if (table.spec().id() != spec.id() || table.spec().dim() != spec.dim()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, " is of another table ", spec.name(), ": number ", table.spec().id(), " of dim ",
        table.spec().dim(), "; the served one has number ", spec.id(), " and dim ", spec.dim()));
  }
  return absl::OkStatus();
}

// Rows of a table with column slices that are joined at a time, about.
constexpr uint64_t kJoinedRows = 16'384;

// The file of a shard.
struct ShardFile {
  const v1::CheckpointShard* shard = nullptr;
  std::unique_ptr<RowsFileReader> reader;
  GoneRows gone;

  uint32_t columns() const { return shard->column_limit() - shard->column_first(); }
};

class TableFiles {
 public:
  TableFiles(const TableSpec& saved, const ServedPlaces& places, const ServedPart& part,
             uint64_t rows_in_all, absl::FunctionRef<absl::Status(const VersionRows&)> take)
      : saved_(saved),
        places_(places),
        first_place_(places.FirstOf(part)),
        limit_place_(places.FirstOf({part.part + 1, part.parts})),
        rows_in_all_(rows_in_all),
        take_(take) {}

  bool Has(const v1::CheckpointShard& shard) const {
    return shard.range_first() < limit_place_ && shard.range_limit() > first_place_;
  }

  absl::StatusOr<ShardFile> Open(const std::string& folder, const v1::CheckpointShard& shard,
                                 Place* place) const {
    ShardFile file = {.shard = &shard};
    const std::string path = absl::StrCat(folder, "/", shard.file());
    HOTBED_ASSIGN_OR_RETURN(file.reader,
                            RowsFileReader::Open(path, shard.bytes(), shard.index_crc(), place));
    const RowsFileHeader& header = file.reader->header();
    if (shard.column_limit() > saved_.dim || shard.column_first() >= shard.column_limit() ||
        header.weight_bytes != file.columns() * BytesPerWeight(saved_.weight_type) ||
        header.hashed != saved_.hashed) {
      return absl::DataLossError(absl::StrCat(path, ": its rows are not those of the table"));
    }
    HOTBED_ASSIGN_OR_RETURN(file.gone, GoneRows::Read(saved_, file.reader.get()));
    return file;
  }

  // Tells the rows of a shard of whole rows, block by block.
  absl::Status Tell(const ShardFile& file) {
    for (const RowsFileEntry& entry : file.reader->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      told_.clear();
      weights_.clear();
      HOTBED_RETURN_IF_ERROR(ForEachRow(file, entry, [&](uint64_t id, const uint8_t* payload) {
        told_.push_back(id);
        weights_.resize(told_.size() * saved_.dim);
        Load(file, payload, weights_.data() + (told_.size() - 1) * saved_.dim);
      }));
      HOTBED_RETURN_IF_ERROR(take_({told_, weights_, rows_in_all_}));
    }
    return absl::OkStatus();
  }

  // Tells the rows that all of these slices of a range of rows have.
  absl::Status TellJoined(const std::vector<ShardFile>& slices) {
    uint64_t first = 0;
    for (const uint64_t last : Cuts(*slices[0].reader)) {
      if (PlaceOfPosition(first) < limit_place_ && PlaceOfPosition(last) >= first_place_) {
        HOTBED_RETURN_IF_ERROR(Join(slices, first, last));
      }
      first = last + 1;
    }
    return absl::OkStatus();
  }

 private:
  // The last positions of runs of about kJoinedRows rows; after the last run come none.
  static std::vector<uint64_t> Cuts(const RowsFileReader& file) {
    std::vector<std::pair<uint64_t, uint32_t>> blocks;  // last position, rows
    for (const RowsFileEntry& entry : file.index()) {
      if (entry.kind == RowsFileBlock::kRows) blocks.push_back({entry.last_position, entry.count});
    }
    std::sort(blocks.begin(), blocks.end());
    std::vector<uint64_t> cuts;
    uint64_t rows = 0;
    for (const auto& [last, count] : blocks) {
      rows += count;
      if (rows < kJoinedRows) continue;
      cuts.push_back(last);
      rows = 0;
    }
    if (rows > 0) cuts.push_back(blocks.back().first);
    return cuts;
  }
  uint64_t PlaceOfPosition(uint64_t position) const {
    return saved_.hashed ? BucketOf(position) : position;
  }

  // Tells the rows with these positions.
  absl::Status Join(const std::vector<ShardFile>& slices, uint64_t first, uint64_t last) {
    struct Joined {
      uint32_t row = 0;     // of weights_
      uint32_t slices = 0;  // as many of the first ones have it
    };
    absl::flat_hash_map<uint64_t, Joined> joined;
    told_.clear();
    weights_.clear();
    for (uint32_t s = 0; s < slices.size(); ++s) {
      const ShardFile& file = slices[s];
      for (const RowsFileEntry& entry : file.reader->index()) {
        if (entry.kind != RowsFileBlock::kRows) continue;
        if (entry.last_position < first || entry.first_position > last) continue;
        HOTBED_RETURN_IF_ERROR(ForEachRow(file, entry, [&](uint64_t id, const uint8_t* payload) {
          const uint64_t position = saved_.hashed ? Mix64(id) : id;
          if (position < first || position > last) return;
          if (s == 0 &&
              joined.try_emplace(id, Joined{static_cast<uint32_t>(told_.size()), 0}).second) {
            told_.push_back(id);
            weights_.resize(told_.size() * saved_.dim);
          }
          const auto row = joined.find(id);
          if (row == joined.end() || row->second.slices < s) return;
          row->second.slices = s + 1;
          Load(file, payload,
               weights_.data() + uint64_t{row->second.row} * saved_.dim +
                   file.shard->column_first());
        }));
      }
    }
    size_t whole = 0;
    for (size_t row = 0; row < told_.size(); ++row) {
      if (joined.find(told_[row])->second.slices < slices.size()) continue;
      told_[whole] = told_[row];
      std::copy_n(weights_.begin() + static_cast<ptrdiff_t>(row * saved_.dim), saved_.dim,
                  weights_.begin() + static_cast<ptrdiff_t>(whole * saved_.dim));
      ++whole;
    }
    told_.resize(whole);
    weights_.resize(whole * saved_.dim);
    return take_({told_, weights_, rows_in_all_});
  }

  // Calls `each(id, payload)` for the rows of a block that are of the shard and of the part,
  // and are there in the end. A shard that was cut while it was saved may have rows of the other
  // part, which are older.
  template <typename Each>
  absl::Status ForEachRow(const ShardFile& file, const RowsFileEntry& entry, Each each) {
    HOTBED_RETURN_IF_ERROR(file.reader->ReadRows(entry, &ids_, &payloads_));
    const uint32_t payload_bytes = file.reader->header().payload_bytes;
    const uint64_t first = std::max(file.shard->range_first(), first_place_);
    const uint64_t limit = std::min(file.shard->range_limit(), limit_place_);
    for (size_t row = 0; row < ids_.size(); ++row) {
      const uint64_t id = ids_[row];
      const uint64_t place = places_.PlaceOf(id);
      const uint8_t* const payload = payloads_.data() + row * payload_bytes;
      if (place < first || place >= limit || file.gone.Has(id, entry.pass, payload)) continue;
      each(id, payload);
    }
    return absl::OkStatus();
  }

  void Load(const ShardFile& file, const uint8_t* payload, float* to) const {
    const uint32_t weight_bytes = BytesPerWeight(saved_.weight_type);
    for (uint32_t column = 0; column < file.columns(); ++column) {
      to[column] = LoadWeight(payload + column * weight_bytes, saved_.weight_type);
    }
  }

  const TableSpec& saved_;
  const ServedPlaces places_;
  const uint64_t first_place_;
  const uint64_t limit_place_;
  const uint64_t rows_in_all_;
  const absl::FunctionRef<absl::Status(const VersionRows&)> take_;
  std::vector<uint64_t> ids_;  // of a block
  std::vector<uint8_t> payloads_;
  std::vector<uint64_t> told_;
  std::vector<float> weights_;
};

using Slices = std::vector<const v1::CheckpointShard*>;  // of a range of rows, by column

// The ranges of a table with column slices: they are never cut, so all slices have the same ones.
absl::StatusOr<std::vector<Slices>> SlicesOf(const std::string& folder, const TableSpec& saved,
                                             const v1::CheckpointTable& table) {
  std::vector<Slices> ranges;
  const auto of_slice = static_cast<size_t>(table.shards_size()) / saved.column_slices;
  for (size_t range = 0; range < of_slice; ++range) {
    for (size_t s = 0; s < saved.column_slices; ++s) {
      const v1::CheckpointShard& shard = table.shards(static_cast<int>(s * of_slice + range));
      if (s == 0) ranges.emplace_back();
      Slices& slices = ranges.back();
      const bool follows = s == 0 ? shard.column_first() == 0
                                  : shard.range_first() == slices[0]->range_first() &&
                                        shard.range_limit() == slices[0]->range_limit() &&
                                        shard.column_first() == slices.back()->column_limit();
      if (!follows) {
        return absl::DataLossError(absl::StrCat(folder, ": shard ", shard.index(), " of table ",
                                                table.spec().name(), " is not slice ", s,
                                                " of range ", range, " of ", of_slice, ", each of ",
                                                saved.column_slices, " slices"));
      }
      slices.push_back(&shard);
    }
  }
  return ranges;
}

}  // namespace

absl::Status ReadVersionRows(const std::string& folder, const v1::TableSpec& spec,
                             const ServedPart& part, Place* place,
                             absl::FunctionRef<absl::Status(const VersionRows&)> take) {
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(folder, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const table, FindTable(manifest, spec.name()));
  HOTBED_RETURN_IF_ERROR(CheckTable(folder, manifest, *table, spec));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec saved, FromProto(table->spec()));
  TableFiles files(saved, ServedPlaces::Of(table->spec()), part,
                   RowsOf(*table) / saved.column_slices, take);
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Slices> ranges, SlicesOf(folder, saved, *table));
  for (const Slices& slices : ranges) {
    if (!files.Has(*slices[0])) continue;
    std::vector<ShardFile> opened;
    for (const v1::CheckpointShard* shard : slices) {
      HOTBED_ASSIGN_OR_RETURN(opened.emplace_back(), files.Open(folder, *shard, place));
    }
    HOTBED_RETURN_IF_ERROR(slices.size() == 1 ? files.Tell(opened[0]) : files.TellJoined(opened));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
