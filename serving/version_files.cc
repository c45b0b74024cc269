#include "serving/version_files.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/gone_rows.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pass_rows.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/status_macros.h"
#include "common/tables/shard_record.h"
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

// Rows are told in blocks of 256 KiB, or one row.
constexpr size_t kFloatsTold = 1 << 16;

// The rows of a shard's file in the order of their positions, each as its last pass has it.
class ShardRows {
 public:
  // `shard` outlives it.
  static absl::StatusOr<ShardRows> Open(const std::string& folder, const TableSpec& saved,
                                        const v1::CheckpointShard& shard, uint64_t first,
                                        uint64_t last, Place* place) {
    const std::string path = absl::StrCat(folder, "/", shard.file());
    const auto open = [&] {
      return RowsFileReader::Open(path, shard.bytes(), shard.index_crc(), place);
    };
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<RowsFileReader> reader, open());
    ShardRows rows(saved, shard.column_first(), shard.column_limit() - shard.column_first());
    const RowsFileHeader& header = reader->header();
    if (header.weight_bytes != rows.columns_ * BytesPerWeight(saved.weight_type) ||
        header.hashed != saved.hashed) {
      return absl::DataLossError(absl::StrCat(path, ": its rows are not those of the table"));
    }
    HOTBED_ASSIGN_OR_RETURN(rows.gone_, GoneRows::Read(saved, reader.get()));
    std::set<uint32_t> passes;
    for (const RowsFileEntry& entry : reader->index()) {
      if (entry.kind == RowsFileBlock::kRows) passes.insert(entry.pass);
    }
    for (const uint32_t pass : passes) {
      if (reader == nullptr) {
        HOTBED_ASSIGN_OR_RETURN(reader, open());
      }
      auto of_pass =
          std::make_unique<PassRows>(std::move(reader), pass, RowsFileBlock::kRows, first, last);
      HOTBED_ASSIGN_OR_RETURN(const bool has_rows, of_pass->Next());
      if (has_rows) rows.passes_.push_back(std::move(of_pass));
    }
    return rows;
  }

  // Goes on to the first row at `position` or behind it. False: there is none.
  absl::StatusOr<bool> Seek(uint64_t position) {
    for (;;) {
      HOTBED_RETURN_IF_ERROR(SkipTo(position));
      if (passes_.empty()) return false;
      current_ = passes_[0].get();
      for (const auto& pass : passes_) {  // a later one replaces an earlier one
        if (pass->position() <= current_->position()) current_ = pass.get();
      }
      if (!gone_.Has(current_->id(), current_->pass(), current_->payload().data())) return true;
      if (current_->position() == UINT64_MAX) return false;
      position = current_->position() + 1;
    }
  }
  uint64_t position() const { return current_->position(); }
  uint64_t id() const { return current_->id(); }
  // The columns of the shard, to their place in `row`.
  void Load(float* row) const {
    const uint32_t weight_bytes = BytesPerWeight(saved_->weight_type);
    const uint8_t* const payload = current_->payload().data();
    for (uint32_t column = 0; column < columns_; ++column) {
      row[column_first_ + column] =
          LoadWeight(payload + column * weight_bytes, saved_->weight_type);
    }
  }

 private:
  ShardRows(const TableSpec& saved, uint32_t column_first, uint32_t columns)
      : saved_(&saved), column_first_(column_first), columns_(columns) {}

  absl::Status SkipTo(uint64_t position) {
    for (auto pass = passes_.begin(); pass != passes_.end();) {
      bool has_rows = true;
      while (has_rows && (*pass)->position() < position) {
        HOTBED_ASSIGN_OR_RETURN(has_rows, (*pass)->Next());
      }
      pass = has_rows ? pass + 1 : passes_.erase(pass);
    }
    return absl::OkStatus();
  }

  const TableSpec* saved_;
  uint32_t column_first_;
  uint32_t columns_;
  GoneRows gone_;
  std::vector<std::unique_ptr<PassRows>> passes_;  // those that have rows left, in their order
  const PassRows* current_ = nullptr;
};

using Slices = std::vector<const v1::CheckpointShard*>;  // of a range of rows, by column

// The ranges of a table with column slices: they are never cut, so all slices have the same ones.
absl::StatusOr<std::vector<Slices>> SlicesOf(const std::string& folder, const TableSpec& saved,
                                             const v1::CheckpointTable& table) {
  std::vector<Slices> ranges;
  const auto shards = static_cast<size_t>(table.shards_size());
  const size_t of_slice = shards / saved.column_slices;
  if (of_slice * saved.column_slices != shards) {
    return absl::DataLossError(absl::StrCat(folder, ": table ", table.spec().name(), " has ",
                                            shards, " shards, which are no ranges of ",
                                            saved.column_slices, " slices each"));
  }
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

// Goes on to the first position at `*position` or behind it where all have a row. False: there is
// none.
absl::StatusOr<bool> SeekWhole(std::vector<ShardRows>* slices, uint64_t* position) {
  size_t same = 0;
  for (size_t i = 0; same < slices->size(); i = (i + 1) % slices->size()) {
    HOTBED_ASSIGN_OR_RETURN(const bool has_row, (*slices)[i].Seek(*position));
    if (!has_row) return false;
    same = (*slices)[i].position() == *position ? same + 1 : 1;
    *position = (*slices)[i].position();
  }
  return true;
}

// Tells the rows that all of these slices of a range have.
absl::Status TellWhole(std::vector<ShardRows> slices, uint32_t dim, uint64_t rows_in_all,
                       absl::FunctionRef<absl::Status(const VersionRows&)> take) {
  std::vector<uint64_t> ids;
  std::vector<float> weights;
  for (uint64_t position = 0;; ++position) {
    HOTBED_ASSIGN_OR_RETURN(const bool has_row, SeekWhole(&slices, &position));
    if (!has_row) break;
    ids.push_back(slices[0].id());
    weights.resize(ids.size() * dim);
    for (const ShardRows& slice : slices) slice.Load(weights.data() + weights.size() - dim);
    if (position == UINT64_MAX) break;
    if (weights.size() < kFloatsTold) continue;
    HOTBED_RETURN_IF_ERROR(take({ids, weights, rows_in_all}));
    ids.clear();
    weights.clear();
  }
  return ids.empty() ? absl::OkStatus() : take({ids, weights, rows_in_all});
}

}  // namespace

absl::Status ReadVersionRows(const std::string& folder, const v1::TableSpec& spec,
                             const ServedPart& part, Place* place,
                             absl::FunctionRef<absl::Status(const VersionRows&)> take) {
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(folder, place));
  HOTBED_ASSIGN_OR_RETURN(const v1::CheckpointTable* const table, FindTable(manifest, spec.name()));
  HOTBED_RETURN_IF_ERROR(CheckTable(folder, manifest, *table, spec));
  HOTBED_ASSIGN_OR_RETURN(const TableSpec saved, FromProto(table->spec()));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Slices> ranges, SlicesOf(folder, saved, *table));
  const ServedPlaces places = ServedPlaces::Of(table->spec());
  for (const Slices& slices : ranges) {
    // A shard that was cut while it was saved may have rows of the other part, which are older.
    const ShardRange range = {
        .first = std::max(slices[0]->range_first(), places.FirstOf(part)),
        .limit = std::min(slices[0]->range_limit(), places.FirstOf({part.part + 1, part.parts}))};
    if (range.first >= range.limit) continue;
    std::vector<ShardRows> rows;
    for (const v1::CheckpointShard* shard : slices) {
      HOTBED_ASSIGN_OR_RETURN(
          ShardRows one, ShardRows::Open(folder, saved, *shard, range.first_position(saved.hashed),
                                         range.last_position(saved.hashed), place));
      rows.push_back(std::move(one));
    }
    HOTBED_RETURN_IF_ERROR(
        TellWhole(std::move(rows), saved.dim, RowsOf(*table) / saved.column_slices, take));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
