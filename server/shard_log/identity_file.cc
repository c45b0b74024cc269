#include "server/shard_log/identity_file.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "server/shard_log/other_version.h"

namespace hotbed {
namespace {

constexpr char kFirstLine[] = "hotbed data directory";
constexpr char kChecksumKey[] = "crc32c: ";

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", why));
}

}  // namespace

absl::StatusOr<IdentityFile> IdentityFile::Load(const std::string& path, FileSystem* files) {
  if (!files->Exists(path)) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  HOTBED_ASSIGN_OR_RETURN(const std::string text, files->ReadAll(path));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (lines.empty() || lines[0] != kFirstLine) return Damaged(path, "it has another first line");
  std::map<std::string, std::string> values;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::pair<std::string, std::string> entry = absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    values.insert(std::move(entry));
  }
  const size_t crc_at = text.rfind(kChecksumKey);
  uint32_t crc = 0;
  const bool intact = crc_at != std::string::npos && absl::SimpleAtoi(values["crc32c"], &crc) &&
                      crc == Crc32c(text.data(), crc_at);
  int version = 0;
  if (!absl::SimpleAtoi(values["version"], &version)) return Damaged(path, "it names no version");
  if (version != kDataFormatVersion) {
    return OtherVersion(path, version, kDataFormatVersion, intact);
  }
  if (!intact) return Damaged(path, "it fails its checksum");
  IdentityFile identity;
  int clean = 0;
  if (!absl::SimpleAtoi(values["server"], &identity.server) ||
      !absl::SimpleAtoi(values["clean_shutdown"], &clean)) {
    return Damaged(path, "a number is missing");
  }
  identity.clean_shutdown = clean == 1;
  identity.cluster_id = values["cluster"];
  identity.boot_id = values["boot"];
  return identity;
}

absl::Status IdentityFile::Save(const std::string& path, FileSystem* files) const {
  for (const std::string& field : {cluster_id, boot_id}) {
    if (field.find('\n') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("a line break in \"", field, "\" cannot be kept in ", path));
    }
  }
  std::string text =
      absl::StrCat(kFirstLine, "\nversion: ", kDataFormatVersion, "\nserver: ", server,
                   "\ncluster: ", cluster_id, "\nclean_shutdown: ", clean_shutdown ? 1 : 0,
                   "\nboot: ", boot_id, "\n");
  absl::StrAppend(&text, kChecksumKey, Crc32c(text.data(), text.size()), "\n");
  return files->WriteAtomically(path, text);
}

std::string BootId(FileSystem* files) {
  char bytes[64];
  const absl::StatusOr<uint64_t> got =
      files->ReadAt("/proc/sys/kernel/random/boot_id", 0, sizeof(bytes), bytes);
  if (!got.ok()) return "";
  return std::string(absl::StripAsciiWhitespace(absl::string_view(bytes, *got)));
}

}  // namespace hotbed
