#include "server/shard_log/segment_files.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/shard_log/record_group.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {
namespace {

// Whether a record or group of the segment begins at `offset`.
absl::StatusOr<bool> HasRecordAt(const SegmentFile& file, uint64_t offset, FileSystem* files) {
  char bytes[kRecordHeaderBytes];
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got,
                          files->ReadAt(file.path, offset, kRecordHeaderBytes, bytes));
  return got == kRecordHeaderBytes && (DecodeRecordHeader(bytes, file.sequence).has_value() ||
                                       DecodeGroupHeader(bytes, file.sequence).has_value());
}

}  // namespace

absl::StatusOr<std::vector<SegmentFile>> ListSegmentFiles(const std::string& dir,
                                                          FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(dir));
  std::vector<SegmentFile> segments;
  for (const std::string& name : names) {
    const std::optional<uint64_t> sequence = ParseSegmentName(name);
    if (!sequence.has_value()) continue;
    SegmentFile& file = segments.emplace_back();
    file.sequence = *sequence;
    file.path = absl::StrCat(dir, "/", name);
    HOTBED_ASSIGN_OR_RETURN(file.bytes, files->FileSize(file.path));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentFile& a, const SegmentFile& b) { return a.sequence < b.sequence; });
  for (size_t i = 0; i < segments.size(); ++i) {
    SegmentFile& file = segments[i];
    const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(file.path, files);
    if (!header.ok()) continue;
    // The older segment's header is still there.
    const bool lost_header = header->sequence != file.sequence;
    file.may_have_old_bytes = header->reused || lost_header;
    if (i == 0 || lost_header || segments[i - 1].sequence + 1 != file.sequence) continue;
    SegmentFile& before = segments[i - 1];
    if (!before.may_have_old_bytes || header->previous_bytes < kSegmentHeaderBytes) continue;
    // Then the header is not of the segment that followed it: both must be told.
    HOTBED_ASSIGN_OR_RETURN(const bool goes_on, HasRecordAt(before, header->previous_bytes, files));
    if (goes_on) continue;
    before.bytes = std::min(before.bytes, header->previous_bytes);
    before.may_have_old_bytes = false;
  }
  return segments;
}

}  // namespace hotbed
