// The manifest of a checkpoint: what is in it, and in which files. The first line of the file is
// {"crc32c": "xxxxxxxx"}, the CRC-32C of all bytes behind it; then follows a CheckpointManifest in
// protobuf's JSON form. It is written last, all at once: a checkpoint without one is not whole.
#ifndef HOTBED_CHECKPOINT_MANIFEST_H_
#define HOTBED_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "places/place.h"
#include "proto/checkpoint.pb.h"

namespace hotbed {

constexpr uint32_t kCheckpointFormat = 1;
constexpr uint32_t kCompressedFormat = 2;  // with `compression`
constexpr uint32_t kDeletesFormat = 3;     // with deleted rows, and perhaps `compression`
constexpr uint32_t kFiltersFormat = 4;     // with counts of touches, and perhaps both
inline constexpr char kManifestFile[] = "manifest.json";

std::string ManifestText(const v1::CheckpointManifest& manifest);
// DataLoss: damaged, or tables whose shards do not tile them. FailedPrecondition: another format.
absl::StatusOr<v1::CheckpointManifest> ParseManifest(absl::string_view text);
// The same for one whose shards are not all there yet.
absl::StatusOr<v1::CheckpointManifest> ParseManifestPart(absl::string_view text);

// Reads that of the checkpoint in `folder`. NotFound: there is none, or a save that did not end.
// The messages name the file.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& folder, Place* place);
// Makes the checkpoint whole.
absl::Status WriteManifest(const std::string& folder, const v1::CheckpointManifest& manifest,
                           Place* place);

// The folder of the checkpoint that has what this one, in `folder`, leaves out.
std::string ParentOf(const std::string& folder, const v1::CheckpointManifest& manifest);
constexpr uint32_t kGenerationsMax = 8;  // that a checkpoint needs beside itself

// NotFound names the tables that there are.
absl::StatusOr<const v1::CheckpointTable*> FindTable(const v1::CheckpointManifest& manifest,
                                                     const std::string& name);
uint64_t BytesOf(const v1::CheckpointTable& table);
uint64_t RowsOf(const v1::CheckpointTable& table);
// The lowest format that says what the manifest has: older programs read what they can.
uint32_t FormatOf(const v1::CheckpointManifest& manifest);

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_MANIFEST_H_
