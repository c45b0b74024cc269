#include "checkpoint/table_arrays.h"

#include <sys/uio.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/array_rows.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/gone_rows.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "checkpoint/weights.h"
#include "common/files/byte_reader.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kImportShardBytes = 64ull << 20;
constexpr uint64_t kManyShardsFrom = 1ull << 20;  // bytes
constexpr uint64_t kCheckBytes = 4ull << 20;
constexpr char kWeightTensor[] = "weight";
constexpr char kIdsTensor[] = "ids";
constexpr char kStateTensor[] = "state";
constexpr char kOrderFile[] = "order";

absl::Status Told(const OnArrayProgress& progress, uint64_t done, uint64_t rows) {
  if (progress == nullptr || progress(done, rows)) return absl::OkStatus();
  return absl::CancelledError("it was broken off");
}

absl::Status Refused(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

WeightType WeightTypeOf(ElementType element) {
  if (element == ElementType::kFp16) return WeightType::kFp16;
  return element == ElementType::kBf16 ? WeightType::kBf16 : WeightType::kFp32;
}

// Rows in order of position, at most `bytes` of them and at least one at a time:
// visit(first row, count, their bytes).
template <typename Visit>
absl::Status ForEachBlock(const ArrayFile& file, const ArrayInfo& array, Visit visit) {
  const uint64_t at_once = std::max<uint64_t>(kCheckBytes / array.row_bytes(), 1);
  std::vector<uint8_t> bytes;
  for (uint64_t row = 0; row < array.rows; row += at_once) {
    const uint64_t count = std::min(at_once, array.rows - row);
    bytes.resize(count * array.row_bytes());
    HOTBED_RETURN_IF_ERROR(
        file.Read(array.offset + row * array.row_bytes(), bytes.size(), bytes.data()));
    HOTBED_RETURN_IF_ERROR(visit(row, count, bytes.data()));
  }
  return absl::OkStatus();
}

// --- import

// The array that `tensor` names, or of the usual name, or the only one that `fits`.
template <typename Fits>
absl::StatusOr<ArrayInfo> Choose(const std::string& path, const std::string& tensor,
                                 const char* usual, Fits fits) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<ArrayInfo> arrays, FindArrays(path));
  if (!IsSafetensors(path)) return arrays.front();
  const ArrayInfo* only = nullptr;
  int fitting = 0;
  std::string there;
  for (const ArrayInfo& array : arrays) {
    if (array.name == (tensor.empty() ? usual : tensor)) return array;
    absl::StrAppend(&there, there.empty() ? "" : ", ", array.name, " ", array.type, array.shape);
    if (!fits(array)) continue;
    only = &array;
    ++fitting;
  }
  if (tensor.empty() && fitting == 1) return *only;
  return absl::NotFoundError(absl::StrCat(path, ": it has no tensor \"",
                                          tensor.empty() ? usual : tensor, "\", but ", there,
                                          tensor.empty() ? ". Name one with --tensor" : ""));
}

// The first weight that is not finite as the table will hold it, or nothing.
absl::Status CheckFinite(const std::string& path, const ArrayInfo& array, const TableSpec& spec,
                         uint64_t first_row, uint64_t count, const uint8_t* bytes) {
  const WeightType type = WeightTypeOf(array.element);
  const uint64_t elements = count * array.columns;
  if (type == WeightType::kFp32 && spec.weight_type == WeightType::kFp32) {
    uint32_t bad = 0;  // all exponent bits are set
    for (uint64_t i = 0; i < elements; ++i) {
      uint32_t bits;
      std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
      bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    }
    if (bad == 0) return absl::OkStatus();
  }
  for (uint64_t i = 0; i < elements; ++i) {
    uint8_t stored[sizeof(float)];
    StoreWeight(LoadWeight(bytes + i * BytesPerWeight(type), type), spec.weight_type, stored);
    const float weight = LoadWeight(stored, spec.weight_type);
    if (std::isfinite(weight)) continue;
    return Refused(path, absl::StrCat("row ", first_row + i / array.columns, ", column ",
                                      i % array.columns, " is ", weight,
                                      "; allowed: finite weights, unless the table's nan policy is "
                                      "allow"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const std::string& path, const ArrayInfo& array, TableSpec* spec) {
  if (!array.is_matrix() || array.element == ElementType::kOther) {
    return Refused(
        path, absl::StrCat("it has ", array.columns == 0 ? "one dimension" : array.shape, " of '",
                           array.type, "'; allowed: rows x dim of 2-byte or 4-byte floats"));
  }
  if (spec->dim == 0) spec->dim = static_cast<uint32_t>(std::min<uint64_t>(array.columns, ~0u));
  if (array.columns != spec->dim) {
    return Refused(
        path, absl::StrCat("it has ", array.columns, " columns, the table's dim is ", spec->dim));
  }
  if (!spec->hashed && spec->rows == 0) spec->rows = array.rows;
  if (spec->hashed || array.rows == spec->rows) return absl::OkStatus();
  return Refused(path,
                 absl::StrCat("it has ", array.rows, " rows, the table's rows are ", spec->rows));
}

absl::Status CheckWeights(const std::string& path, const ArrayInfo& array, const TableSpec& spec,
                          const OnArrayProgress& progress) {
  if (spec.nan_policy == NanPolicy::kAllow) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/false));
  return ForEachBlock(*file, array, [&](uint64_t row, uint64_t count, const uint8_t* bytes) {
    HOTBED_RETURN_IF_ERROR(CheckFinite(path, array, spec, row, count, bytes));
    return Told(progress, row + count, array.rows);
  });
}

absl::Status FindPlaces(const std::string& path, FoundArrays* found) {
  const ArrayInfo& ids = found->ids;
  const uint64_t rows = found->weights.rows;
  if (ids.element != ElementType::kId || ids.columns != 0 || ids.rows != rows) {
    return Refused(path,
                   absl::StrCat("it has ", ids.rows, " elements of '", ids.type, "' in ",
                                ids.columns == 0 ? "one dimension" : "two dimensions",
                                "; allowed: ", rows, ", one per row, of 8-byte integers in one"));
  }
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/false));
  auto& places = found->places;
  places.resize(rows);
  HOTBED_RETURN_IF_ERROR(
      ForEachBlock(*file, ids, [&](uint64_t row, uint64_t count, const uint8_t* bytes) {
        for (uint64_t i = 0; i < count; ++i) {
          uint64_t id;
          std::memcpy(&id, bytes + i * sizeof(id), sizeof(id));
          places[row + i] = {Mix64(id), row + i};
        }
        return absl::OkStatus();
      }));
  std::sort(places.begin(), places.end());
  const auto twice =
      std::adjacent_find(places.begin(), places.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == places.end()) return absl::OkStatus();
  return Refused(path, absl::StrCat("id ", Unmix64(twice->first), " occurs twice, in rows ",
                                    twice->second, " and ", (twice + 1)->second));
}

absl::Status CheckState(const std::string& path, const ArrayInfo& state, const ArrayInfo& weights,
                        const TableSpec& spec) {
  const uint64_t columns = spec.state_bytes_per_row() / sizeof(float);
  if (state.element == ElementType::kFp32 && state.rows == weights.rows &&
      state.columns == columns) {
    return absl::OkStatus();
  }
  return Refused(path, absl::StrCat("its shape is ", state.shape, " of '", state.type,
                                    "'; allowed: ", weights.rows, " x ", columns,
                                    " 4-byte floats, the optimizer state of this table"));
}

absl::StatusOr<v1::ArrayInFile> DescribeArray(const std::string& path, const ArrayInfo& array) {
  HOTBED_ASSIGN_OR_RETURN(const auto file, ArrayFile::Open(path, /*writes=*/false));
  v1::ArrayInFile described;
  described.set_path(path);
  described.set_offset(array.offset);
  described.set_type(static_cast<v1::WeightType>(WeightTypeOf(array.element)));
  described.set_file_bytes(file->bytes());
  described.set_modified_unix_ns(file->modified_unix_ns());
  return described;
}

absl::Status WriteOrder(const std::string& path, const FoundArrays& arrays, FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const auto file, files->OpenAppend(path));
  std::string block;
  const auto flush = [&]() -> absl::Status {
    const iovec piece = {block.data(), block.size()};
    HOTBED_RETURN_IF_ERROR(file->Append({&piece, 1}));
    block.clear();
    return absl::OkStatus();
  };
  for (const auto& [position, row] : arrays.places) {
    AppendLittle<uint64_t>(position, &block);
    AppendLittle<uint64_t>(row, &block);
    if (block.size() >= kCheckBytes) HOTBED_RETURN_IF_ERROR(flush());
  }
  HOTBED_RETURN_IF_ERROR(flush());
  return file->Sync();
}

// The shards of the new table: even ranges of some kImportShardBytes each.
void AddShards(const FoundArrays& arrays, const TableSpec& spec, v1::CheckpointTable* table) {
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  const uint64_t bytes = arrays.weights.rows * row_bytes;
  const uint64_t end = spec.hashed ? kBuckets : spec.rows;
  uint64_t ranges = std::max<uint64_t>(bytes / kImportShardBytes, 1);
  if (bytes > kManyShardsFrom) ranges = std::max<uint64_t>(ranges, kShardsPerTableMin);
  ranges = std::min({ranges, end, uint64_t{kShardsPerTableMax} / spec.column_slices});
  for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
    const ColumnRange columns = SliceColumns(spec.dim, spec.column_slices, slice);
    for (uint64_t i = 0; i < ranges; ++i) {
      const ShardRange range = {
          static_cast<uint64_t>(static_cast<__uint128_t>(end) * i / ranges),
          static_cast<uint64_t>(static_cast<__uint128_t>(end) * (i + 1) / ranges), columns.first,
          columns.limit};
      uint64_t rows = range.limit - range.first;
      if (spec.hashed) {
        const auto from = [&](uint64_t position) {
          return std::lower_bound(arrays.places.begin(), arrays.places.end(),
                                  std::pair(position, uint64_t{0}));
        };
        const uint64_t last = range.last_position(true);
        const auto limit = last == ~uint64_t{0} ? arrays.places.end() : from(last + 1);
        rows = static_cast<uint64_t>(limit - from(range.first_position(true)));
      }
      v1::CheckpointShard& shard = *table->add_shards();
      shard.set_index(static_cast<uint32_t>(table->shards_size() - 1));
      shard.set_range_first(range.first);
      shard.set_range_limit(range.limit);
      shard.set_column_first(columns.first);
      shard.set_column_limit(columns.limit);
      shard.set_rows(rows);
      shard.set_bytes(rows * row_bytes / spec.column_slices);
    }
  }
}

// --- export

ElementType ExportElement(WeightType type, const std::string& path) {
  if (type == WeightType::kFp16) return ElementType::kFp16;
  const bool narrow = type == WeightType::kBf16 && IsSafetensors(path);  // .npy has no such type
  return narrow ? ElementType::kBf16 : ElementType::kFp32;
}

std::string TypeText(ElementType element, const std::string& path) {
  const bool npy = !IsSafetensors(path);
  switch (element) {
    case ElementType::kFp16:
      return npy ? "<f2" : "F16";
    case ElementType::kId:
      return npy ? "<u8" : "U64";
    case ElementType::kBf16:
      return "BF16";
    default:
      return npy ? "<f4" : "F32";
  }
}

ArrayInfo ArrayToMake(const char* name, const std::string& path, ElementType element, uint64_t rows,
                      uint64_t columns) {
  ArrayInfo array;
  array.name = name;
  array.type = TypeText(element, path);
  array.element = element;
  array.rows = rows;
  array.columns = columns;
  return array;
}

class RowsJoin {
 public:
  RowsJoin(const std::string& folder, const v1::CheckpointTable& table, const TableSpec& spec,
           Place* place, const OnArrayProgress& progress)
      : folder_(folder), spec_(spec), place_(*place), progress_(progress) {
    for (const v1::CheckpointShard& shard : table.shards()) {
      ranges_[shard.range_first()].push_back(&shard);
    }
  }

  absl::StatusOr<uint64_t> Write(const ArrayNames& names) {
    uint64_t rows = 0;
    for (const auto& [first, shards] : ranges_) {
      HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, PositionsOf(shards));
      rows += positions.size();
    }
    v1::TableArrays arrays;
    ArrayInfo ids;
    HOTBED_RETURN_IF_ERROR(MakeExportFiles(spec_, folder_, names, rows, &arrays, &ids));
    const std::string prefix = folder_ + "/";
    HOTBED_ASSIGN_OR_RETURN(const auto weights,
                            ArrayFile::Open(prefix + arrays.weights().path(), /*writes=*/true));
    HOTBED_ASSIGN_OR_RETURN(const auto id_file, ArrayFile::Open(prefix + names.ids, true));
    RowArrays to = {weights.get(), arrays.weights().offset(),
                    static_cast<WeightType>(arrays.weights().type()), nullptr, 0};
    std::unique_ptr<ArrayFile> state;
    if (arrays.has_state()) {
      HOTBED_ASSIGN_OR_RETURN(state, ArrayFile::Open(prefix + arrays.state().path(), true));
      to.state = state.get();
      to.state_at = arrays.state().offset();
    }
    uint64_t done = 0;
    for (const auto& [first, shards] : ranges_) {
      HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, PositionsOf(shards));
      HOTBED_RETURN_IF_ERROR(WriteRange(shards, positions, to, done));
      std::vector<uint64_t> written(positions.size());
      std::transform(positions.begin(), positions.end(), written.begin(), Unmix64);
      HOTBED_RETURN_IF_ERROR(id_file->Write(ids.offset + done * sizeof(uint64_t), written.data(),
                                            written.size() * sizeof(uint64_t)));
      done += positions.size();
      HOTBED_RETURN_IF_ERROR(Told(progress_, done, rows));
    }
    HOTBED_RETURN_IF_ERROR(weights->Sync());
    if (state != nullptr) HOTBED_RETURN_IF_ERROR(state->Sync());
    HOTBED_RETURN_IF_ERROR(id_file->Sync());
    return rows;
  }

 private:
  using Shards = std::vector<const v1::CheckpointShard*>;  // of one range, by slice

  // visit(ids, payloads, pass) for the rows of each block that are there, in order of passes.
  template <typename Visit>
  absl::Status ForEachRows(const v1::CheckpointShard& shard, Visit visit) const {
    HOTBED_ASSIGN_OR_RETURN(const auto file,
                            RowsFileReader::Open(absl::StrCat(folder_, "/", shard.file()),
                                                 shard.bytes(), shard.index_crc(), &place_));
    HOTBED_ASSIGN_OR_RETURN(const GoneRows gone, GoneRows::Read(spec_, file.get()));
    if (gone.any_deleted() && spec_.column_slices > 1) {  // each slice is as of another moment
      return absl::FailedPreconditionError(absl::StrCat(
          "table ", spec_.name,
          ": rows were deleted while it was exported; export it again, without deletes"));
    }
    std::vector<uint64_t> ids;
    std::vector<uint8_t> payloads;
    for (const RowsFileEntry& entry : file->index()) {
      if (entry.kind != RowsFileBlock::kRows) continue;
      HOTBED_RETURN_IF_ERROR(file->ReadRows(entry, &ids, &payloads));
      const size_t bytes = file->header().payload_bytes;
      size_t kept = 0;
      for (size_t k = 0; k < ids.size(); ++k) {
        if (gone.Has(ids[k], entry.pass, payloads.data() + k * bytes)) continue;
        if (kept != k) std::memcpy(&payloads[kept * bytes], &payloads[k * bytes], bytes);
        ids[kept++] = ids[k];
      }
      ids.resize(kept);
      payloads.resize(kept * bytes);
      if (!ids.empty()) HOTBED_RETURN_IF_ERROR(visit(ids, payloads, entry.pass));
    }
    return absl::OkStatus();
  }

  // The positions of a range that any slice has a row of.
  absl::StatusOr<std::vector<uint64_t>> PositionsOf(const Shards& shards) const {
    std::vector<uint64_t> positions;
    for (const v1::CheckpointShard* shard : shards) {
      HOTBED_RETURN_IF_ERROR(
          ForEachRows(*shard, [&](const auto& ids, const auto& /*payloads*/, uint32_t /*pass*/) {
            for (const uint64_t id : ids) positions.push_back(Mix64(id));
            return absl::OkStatus();
          }));
    }
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    return positions;
  }

  absl::Status WriteRange(const Shards& shards, const std::vector<uint64_t>& positions,
                          const RowArrays& to, uint64_t first_row) const {
    const auto id_of = [&](uint64_t row) { return Unmix64(positions[row - first_row]); };
    for (const v1::CheckpointShard* shard : shards) {
      ArrayRowWriter writer(&spec_, ArraySlice(spec_, shard->column_first(), shard->column_limit()),
                            to, first_row, first_row + positions.size(), id_of, nullptr);
      uint32_t pass_now = 0;
      HOTBED_RETURN_IF_ERROR(ForEachRows(
          *shard, [&](const auto& ids, const auto& payloads, uint32_t pass) -> absl::Status {
            if (pass != pass_now) HOTBED_RETURN_IF_ERROR(writer.BeginPass());
            pass_now = pass;
            const size_t bytes = payloads.size() / ids.size();
            for (size_t k = 0; k < ids.size(); ++k) {
              const auto at = std::lower_bound(positions.begin(), positions.end(), Mix64(ids[k]));
              HOTBED_RETURN_IF_ERROR(
                  writer.Put(first_row + (at - positions.begin()), payloads.data() + k * bytes));
            }
            return absl::OkStatus();
          }));
      HOTBED_RETURN_IF_ERROR(writer.Finish());
    }
    return absl::OkStatus();
  }

  const std::string folder_;
  const TableSpec& spec_;
  Place& place_;
  const OnArrayProgress& progress_;
  std::map<uint64_t, Shards> ranges_;
};

}  // namespace

absl::Status CheckNames(const TableSpec& spec, ArrayNames* names) {
  if (spec.hashed && names->ids.empty() && IsSafetensors(names->weights)) {
    names->ids = names->weights;
  }
  const auto refused = [&spec](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", spec.name, "\": ", why));
  };
  if (spec.hashed && names->ids.empty()) {
    return refused(
        "it is hashed: the ids of its rows have a file of their own; name it with --ids");
  }
  if (!spec.hashed && !names->ids.empty()) {
    return refused("it is bounded: row i is that of id i; leave --ids out");
  }
  if (!names->state.empty() && spec.dim > 0 && spec.state_bytes_per_row() == 0) {
    return refused("its optimizer has no state; leave --state out");
  }
  if (!names->tensor.empty() && !IsSafetensors(names->weights)) {
    return refused(absl::StrCat(names->weights, " is no .safetensors file; leave --tensor out"));
  }
  for (const std::string* other : {&names->ids, &names->state}) {
    if (other->empty() || *other != names->weights || IsSafetensors(*other)) continue;
    return refused(absl::StrCat(*other, " is named twice, and an .npy file has one array"));
  }
  if (!names->ids.empty() && names->ids == names->state && !IsSafetensors(names->ids)) {
    return refused(absl::StrCat(names->ids, " is named twice, and an .npy file has one array"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ArrayInfo> FindWeights(const ArrayNames& names) {
  return Choose(names.weights, names.tensor, kWeightTensor, [](const ArrayInfo& array) {
    return array.is_matrix() && array.element != ElementType::kOther;
  });
}

absl::StatusOr<FoundArrays> CheckArrays(const ArrayNames& names, TableSpec* spec,
                                        const OnArrayProgress& progress) {
  FoundArrays found;
  found.names = names;
  HOTBED_RETURN_IF_ERROR(CheckNames(*spec, &found.names));
  HOTBED_ASSIGN_OR_RETURN(found.weights, FindWeights(found.names));
  HOTBED_RETURN_IF_ERROR(CheckShape(names.weights, found.weights, spec));
  HOTBED_RETURN_IF_ERROR(CheckNames(*spec, &found.names));  // the dim is known now
  if (!names.state.empty()) {
    HOTBED_ASSIGN_OR_RETURN(
        found.state, Choose(names.state, "", kStateTensor, [](const ArrayInfo&) { return false; }));
    HOTBED_RETURN_IF_ERROR(CheckState(names.state, found.state, found.weights, *spec));
  }
  if (spec->hashed) {
    HOTBED_ASSIGN_OR_RETURN(found.ids,
                            Choose(found.names.ids, "", kIdsTensor, [](const ArrayInfo& array) {
                              return array.element == ElementType::kId;
                            }));
    HOTBED_RETURN_IF_ERROR(FindPlaces(found.names.ids, &found));
  }
  HOTBED_RETURN_IF_ERROR(CheckWeights(names.weights, found.weights, *spec, progress));
  return found;
}

absl::Status DescribeArrays(const FoundArrays& arrays, const TableSpec& spec,
                            const std::string& folder, FileSystem* files, Place* place) {
  v1::CheckpointManifest manifest;
  manifest.set_format(kCheckpointFormat);
  manifest.set_name(folder.substr(folder.rfind('/') + 1));
  manifest.set_begun_unix_ms(absl::ToUnixMillis(absl::Now()));
  manifest.set_ended_unix_ms(manifest.begun_unix_ms());
  v1::CheckpointTable& table = *manifest.add_tables();
  *table.mutable_spec() = ToProto(spec);
  v1::TableArrays& described = *table.mutable_arrays();
  described.set_rows(arrays.weights.rows);
  HOTBED_ASSIGN_OR_RETURN(*described.mutable_weights(),
                          DescribeArray(arrays.names.weights, arrays.weights));
  if (!arrays.names.state.empty()) {
    HOTBED_ASSIGN_OR_RETURN(*described.mutable_state(),
                            DescribeArray(arrays.names.state, arrays.state));
  }
  AddShards(arrays, spec, &table);
  if (spec.hashed) {
    described.set_order(kOrderFile);
    HOTBED_RETURN_IF_ERROR(WriteOrder(absl::StrCat(folder, "/", kOrderFile), arrays, files));
  }
  HOTBED_RETURN_IF_ERROR(files->SyncDir(folder));
  HOTBED_RETURN_IF_ERROR(WriteManifest(folder, manifest, place));
  return place->Delete(folder, {kSavingFile});
}

absl::Status MakeExportFiles(const TableSpec& spec, const std::string& folder,
                             const ArrayNames& names, uint64_t rows, v1::TableArrays* arrays,
                             ArrayInfo* ids) {
  const ElementType element = ExportElement(spec.weight_type, names.weights);
  std::map<std::string, std::vector<ArrayInfo>> of_file;
  of_file[names.weights].push_back(
      ArrayToMake(kWeightTensor, names.weights, element, rows, spec.dim));
  if (spec.hashed) {
    of_file[names.ids].push_back(ArrayToMake(kIdsTensor, names.ids, ElementType::kId, rows, 0));
  }
  if (!names.state.empty()) {
    of_file[names.state].push_back(ArrayToMake(kStateTensor, names.state, ElementType::kFp32, rows,
                                               spec.state_bytes_per_row() / sizeof(float)));
  }
  arrays->set_rows(rows);
  for (auto& [name, made] : of_file) {
    HOTBED_RETURN_IF_ERROR(MakeArrays(absl::StrCat(folder, "/", name), &made));
    for (const ArrayInfo& array : made) {
      if (array.name == kIdsTensor) {
        *ids = array;
        continue;
      }
      v1::ArrayInFile& place =
          array.name == kStateTensor ? *arrays->mutable_state() : *arrays->mutable_weights();
      place.set_path(name);
      place.set_offset(array.offset);
      place.set_type(static_cast<v1::WeightType>(WeightTypeOf(array.element)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JoinRows(const std::string& folder, const v1::CheckpointTable& table,
                                  const ArrayNames& names, Place* place,
                                  const OnArrayProgress& progress) {
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(table.spec()));
  return RowsJoin(folder, table, spec, place, progress).Write(names);
}

}  // namespace hotbed
