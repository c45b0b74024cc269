// A small checkpoint, written as servers and a client write one.
#ifndef HOTBED_TESTS_CHECKPOINT_SAVED_CHECKPOINT_H_
#define HOTBED_TESTS_CHECKPOINT_SAVED_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "places/directory_place.h"
#include "proto/convert.h"

namespace hotbed {

inline TableSpec SavedTable() {
  TableSpec spec;
  spec.name = "user";
  spec.rows = 100;
  spec.dim = 2;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.seed = 7;
  return spec;
}

inline absl::StatusOr<v1::CheckpointShard> SaveShard(const std::string& folder, uint32_t index,
                                                     uint64_t first, uint64_t limit, Place* place) {
  v1::CheckpointShard shard;
  shard.set_index(index);
  shard.set_range_first(first);
  shard.set_range_limit(limit);
  shard.set_column_limit(2);
  shard.set_file(absl::StrCat("1-", index, "-1.rows"));
  HOTBED_ASSIGN_OR_RETURN(
      const auto file,
      RowsFileWriter::Create(absl::StrCat(folder, "/", shard.file()), {false, 8, 8}, place));
  const std::vector<uint8_t> payloads(16, static_cast<uint8_t>(index + 1));
  file->BeginPass();
  HOTBED_RETURN_IF_ERROR(file->AddRows({first, first + 1}, payloads));
  HOTBED_RETURN_IF_ERROR(file->AddRows({first + 4, limit - 1}, payloads));
  file->BeginPass();
  HOTBED_RETURN_IF_ERROR(file->AddRows({first + 1}, absl::MakeConstSpan(payloads).subspan(0, 8)));
  HOTBED_RETURN_IF_ERROR(file->AddSessions("sessions"));
  HOTBED_RETURN_IF_ERROR(file->Finish());
  shard.set_bytes(file->bytes());
  shard.set_rows(file->rows());
  shard.set_index_crc(file->index_crc());
  return shard;
}

// The path of its folder.
inline absl::StatusOr<std::string> Save(const std::string& directory, const std::string& name,
                                        int64_t now_ms, Place* place) {
  HOTBED_ASSIGN_OR_RETURN(const std::string folder,
                          MakeCheckpointFolder(directory, name, absl::StrCat(now_ms), place));
  v1::CheckpointManifest manifest;
  manifest.set_format(kCheckpointFormat);
  manifest.set_name(name);
  manifest.set_begun_unix_ms(now_ms);
  v1::CheckpointTable& table = *manifest.add_tables();
  *table.mutable_spec() = ToProto(SavedTable());
  for (uint32_t index = 0; index < 2; ++index) {
    HOTBED_ASSIGN_OR_RETURN(*table.add_shards(),
                            SaveShard(folder, index, index * 40, index == 0 ? 40 : 100, place));
  }
  HOTBED_RETURN_IF_ERROR(WriteManifest(folder, manifest, place));
  HOTBED_RETURN_IF_ERROR(place->Delete(folder, {kSavingFile}));
  return folder;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_CHECKPOINT_SAVED_CHECKPOINT_H_
