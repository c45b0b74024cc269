#include "serving/version_files.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "checkpoint/gone_rows.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "proto/convert.h"

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

class TableFiles {
 public:
  TableFiles(const TableSpec& saved, const ServedPlaces& places, const ServedPart& part,
             absl::FunctionRef<absl::Status(const VersionRows&)> take)
      : saved_(saved),
        places_(places),
        first_place_(places.FirstOf(part)),
        limit_place_(places.FirstOf({part.part + 1, part.parts})),
        take_(take) {}

  bool Has(const v1::CheckpointShard& shard) const {
    return shard.range_first() < limit_place_ && shard.range_limit() > first_place_;
  }

  absl::Status ReadShard(const std::string& path, const v1::CheckpointShard& shard, uint64_t in_all,
                         Place* place) {
    HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<RowsFileReader> file,
                            RowsFileReader::Open(path, shard.bytes(), shard.index_crc(), place));
    const RowsFileHeader& header = file->header();
    if (header.weight_bytes != saved_.weight_bytes_per_row() || header.hashed != saved_.hashed) {
      return absl::DataLossError(absl::StrCat(path, ": its rows are not those of the table"));
    }
    HOTBED_ASSIGN_OR_RETURN(const GoneRows gone, GoneRows::Read(saved_, file.get()));
    for (const RowsFileEntry& entry : file->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      HOTBED_RETURN_IF_ERROR(file->ReadRows(entry, &ids_, &payloads_));
      TakeWeights(shard, entry.pass, header.payload_bytes, gone);
      HOTBED_RETURN_IF_ERROR(take_({ids_, weights_, in_all}));
    }
    return absl::OkStatus();
  }

 private:
  // A shard that was cut while it was saved may have rows of the other part, which are older.
  bool IsOf(const v1::CheckpointShard& shard, uint64_t id) const {
    const uint64_t place = places_.PlaceOf(id);
    return place >= std::max(shard.range_first(), first_place_) &&
           place < std::min(shard.range_limit(), limit_place_);
  }

  void TakeWeights(const v1::CheckpointShard& shard, uint32_t pass, uint32_t payload_bytes,
                   const GoneRows& gone) {
    const uint32_t weight_bytes = BytesPerWeight(saved_.weight_type);
    weights_.resize(ids_.size() * saved_.dim);
    size_t taken = 0;
    for (size_t row = 0; row < ids_.size(); ++row) {
      const uint8_t* const from = payloads_.data() + row * payload_bytes;
      if (!IsOf(shard, ids_[row]) || gone.Has(ids_[row], pass, from)) continue;
      float* const to = weights_.data() + taken * saved_.dim;
      for (uint32_t column = 0; column < saved_.dim; ++column) {
        to[column] = LoadWeight(from + column * weight_bytes, saved_.weight_type);
      }
      ids_[taken++] = ids_[row];
    }
    ids_.resize(taken);
    weights_.resize(taken * saved_.dim);
  }

  const TableSpec& saved_;
  const ServedPlaces places_;
  const uint64_t first_place_;
  const uint64_t limit_place_;
  const absl::FunctionRef<absl::Status(const VersionRows&)> take_;
  std::vector<uint64_t> ids_;
  std::vector<uint8_t> payloads_;
  std::vector<float> weights_;
};

}  // namespace

absl::Status ReadVersionRows(const std::string& folder, const v1::TableSpec& spec,
                             const ServedPart& part, Place* place,
                             absl::FunctionRef<absl::Status(const VersionRows&)> take) {
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(folder, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const table, FindTable(manifest, spec.name()));
  HOTBED_RETURN_IF_ERROR(CheckTable(folder, manifest, *table, spec));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec saved, FromProto(table->spec()));
  TableFiles files(saved, ServedPlaces::Of(table->spec()), part, take);
  for (const v1::CheckpointShard& shard : table->shards()) {
    if (!files.Has(shard)) continue;
    HOTBED_RETURN_IF_ERROR(
        files.ReadShard(absl::StrCat(folder, "/", shard.file()), shard, RowsOf(*table), place));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
