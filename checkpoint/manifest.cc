#include "checkpoint/manifest.h"

#include <google/protobuf/util/json_util.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/block_packer.h"
#include "common/check.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

std::string FirstLine(absl::string_view body) {
  return absl::StrFormat("{\"crc32c\": \"%08x\"}\n", Crc32c(body.data(), body.size()));
}

// Each slice of columns covers 0 to the table's end without a gap, and the slices cover the dim.
absl::Status CheckTiling(const v1::CheckpointTable& table) {
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(table.spec()));
  const auto broken = [&table](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("the shards of table ", table.spec().name(), " do not tile it: ", what));
  };
  uint32_t columns = 0;
  uint64_t end = 0;
  const uint64_t table_end = spec.hashed ? 65536 : spec.rows;
  for (const v1::CheckpointShard& shard : table.shards()) {
    if (shard.column_first() == columns && end == 0) {
      columns = shard.column_limit();
    } else if (shard.column_limit() != columns) {
      return broken(absl::StrCat("columns ", shard.column_first()));
    }
    if (shard.range_first() != end || shard.range_limit() <= end) {
      return broken(absl::StrCat("shard ", shard.index(), " begins at ", shard.range_first()));
    }
    end = shard.range_limit() == table_end ? 0 : shard.range_limit();
  }
  if (columns != spec.dim || end != 0) return broken("the last shards are missing");
  return absl::OkStatus();
}

}  // namespace

std::string ManifestText(const v1::CheckpointManifest& manifest) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string body;
  const auto printed = google::protobuf::util::MessageToJsonString(manifest, &body, options);
  HOTBED_CHECK(printed.ok()) << printed.ToString();
  return FirstLine(body) + body;
}

absl::StatusOr<v1::CheckpointManifest> ParseManifestPart(absl::string_view text) {
  const size_t line = text.find('\n');
  const absl::string_view body = line == text.npos ? "" : text.substr(line + 1);
  if (line == text.npos || text.substr(0, line + 1) != FirstLine(body)) {
    return absl::DataLossError("its checksum does not match: it is damaged or cut off");
  }
  v1::CheckpointManifest manifest;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of another format, which is refused below
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(body.data(), body.size()), &manifest, options);
  if (!parsed.ok()) return absl::DataLossError(absl::StrCat("no manifest: ", parsed.ToString()));
  const bool packed = !manifest.compression().empty();
  const bool known = (!packed || manifest.compression() == kZstd) &&
                     (manifest.format() == kDeletesFormat || manifest.format() == kFiltersFormat ||
                      manifest.format() == (packed ? kCompressedFormat : kCheckpointFormat));
  if (known) return manifest;
  return absl::FailedPreconditionError(absl::StrCat(
      "format ", manifest.format(),
      manifest.compression().empty() ? "" : absl::StrCat(" with ", manifest.compression()),
      ", this program reads ", kCheckpointFormat, ", ", kCompressedFormat, " with zstd, ",
      kDeletesFormat, " and ", kFiltersFormat));
}

absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::string_view text) {
  HOTBED_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ParseManifestPart(text));
  // A chain of parents ends: each is of a lower generation.
  const bool has_parent = !manifest.parent().empty();
  if (has_parent != (manifest.generation() > 0) || manifest.generation() > kGenerationsMax ||
      manifest.parent().find('/') != std::string::npos || manifest.parent() == "..") {
    return absl::DataLossError(absl::StrCat("generation ", manifest.generation(),
                                            " with the parent \"", manifest.parent(), "\""));
  }
  for (const v1::CheckpointTable& table : manifest.tables()) {
    HOTBED_RETURN_IF_ERROR(CheckTiling(table));
    for (const v1::CheckpointShard& shard : table.shards()) {
      if (shard.above_lsn() == 0 || has_parent) continue;
      return absl::DataLossError(absl::StrCat("shard ", shard.index(), " has changed rows only"));
    }
  }
  return manifest;
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& folder, Place* place) {
  const std::string path = absl::StrCat(folder, "/", kManifestFile);
  const absl::StatusOr<std::string> text = place->ReadAll(path);
  if (absl::IsNotFound(text.status())) {
    const bool empty = absl::IsNotFound(place->List(folder).status());
    return absl::NotFoundError(absl::StrCat(
        path, " is not there: ", folder, empty ? " does not exist" : " holds no whole checkpoint",
        ". 'hotbed checkpoint list' shows those of a directory"));
  }
  HOTBED_RETURN_IF_ERROR(text.status());
  absl::StatusOr<v1::CheckpointManifest> manifest = ParseManifest(*text);
  if (manifest.ok()) return manifest;
  const bool other_format = absl::IsFailedPrecondition(manifest.status());
  return absl::Status(
      other_format ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss,
      absl::StrCat(path, ": ", manifest.status().message()));
}

absl::Status WriteManifest(const std::string& folder, const v1::CheckpointManifest& manifest,
                           Place* place) {
  return place->Put(absl::StrCat(folder, "/", kManifestFile), ManifestText(manifest));
}

std::string ParentOf(const std::string& folder, const v1::CheckpointManifest& manifest) {
  return absl::StrCat(folder.substr(0, folder.rfind('/')), "/", manifest.parent());
}

absl::StatusOr<const v1::CheckpointTable*> FindTable(const v1::CheckpointManifest& manifest,
                                                     const std::string& name) {
  std::vector<std::string> names;
  for (const v1::CheckpointTable& table : manifest.tables()) {
    if (table.spec().name() == name) return &table;
    names.push_back(table.spec().name());
  }
  return absl::NotFoundError(absl::StrCat("checkpoint ", manifest.name(), " has no table \"", name,
                                          "\"; it has: ", absl::StrJoin(names, ", ")));
}

uint64_t BytesOf(const v1::CheckpointTable& table) {
  uint64_t bytes = 0;
  for (const v1::CheckpointShard& shard : table.shards()) bytes += shard.bytes();
  return bytes;
}

uint64_t RowsOf(const v1::CheckpointTable& table) {
  uint64_t rows = 0;
  for (const v1::CheckpointShard& shard : table.shards()) rows += shard.rows();
  return rows;
}

uint32_t FormatOf(const v1::CheckpointManifest& manifest) {
  bool deletes = false;
  for (const v1::CheckpointTable& table : manifest.tables()) {
    for (const v1::CheckpointShard& shard : table.shards()) {
      if (shard.touch_filter_bytes() > 0) return kFiltersFormat;
      deletes |= shard.deleted() > 0;
    }
  }
  if (deletes) return kDeletesFormat;
  return manifest.compression().empty() ? kCheckpointFormat : kCompressedFormat;
}

}  // namespace hotbed
