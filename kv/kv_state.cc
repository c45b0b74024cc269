#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/files/crc32c.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "kv/kv_store.h"

namespace hotbed {
namespace {

constexpr uint64_t kCheckedBytes = 4096;  // at the end of the manifest

absl::Status Lost(const std::string& path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(path, " ", why));
}

}  // namespace

absl::StatusOr<KvState> KvStateOf(const std::string& dir, uint64_t bytes_max) {
  FileSystem* const files = FileSystem::Real();
  const std::string current = dir + "/CURRENT";
  if (!files->Exists(current)) return Lost(current, "is missing");
  HOTBED_ASSIGN_OR_RETURN(const std::string text, files->ReadAll(current));
  absl::string_view number = text;
  KvState state;
  if (!absl::ConsumePrefix(&number, "MANIFEST-") || !absl::ConsumeSuffix(&number, "\n") ||
      !absl::SimpleAtoi(number, &state.file)) {
    return Lost(current, "is damaged: it names no manifest");
  }
  const std::string manifest = absl::StrCat(dir, "/MANIFEST-", number);
  if (!files->Exists(manifest)) {
    return Lost(manifest, absl::StrCat("is missing, which ", current, " names"));
  }
  HOTBED_ASSIGN_OR_RETURN(const uint64_t bytes, files->FileSize(manifest));
  state.bytes = std::min(bytes, bytes_max);
  std::string last(std::min(state.bytes, kCheckedBytes), '\0');
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got, files->ReadAt(manifest, state.bytes - last.size(),
                                                            last.size(), last.data()));
  state.crc = Crc32c(last.data(), got);
  return state;
}

}  // namespace hotbed
