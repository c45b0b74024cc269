#include "server/shard_log/segment_files.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {

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
    before.bytes = std::min(before.bytes, header->previous_bytes);
    before.may_have_old_bytes = false;
  }
  return segments;
}

}  // namespace hotbed
