#include "server/shard_log/identity_file.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/files/crc32c.h"
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
  int made = 0;
  if (!absl::SimpleAtoi(values["server"], &identity.server) ||
      !absl::SimpleAtoi(values["clean_shutdown"], &clean) ||
      !absl::SimpleAtoi(values["made"], &made) ||
      !absl::SimpleAtoi(values["start"], &identity.start) ||
      !absl::SimpleAtoi(values["run"], &identity.run) ||
      !absl::SimpleAtoi(values["generation"], &identity.generation)) {
    return Damaged(path, "a number is missing");
  }
  for (const absl::string_view run :
       absl::StrSplit(values["runs_before"], ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(run, &identity.runs_before.emplace_back())) {
      return Damaged(path, "runs_before is no list of numbers");
    }
  }
  for (const absl::string_view entry : absl::StrSplit(values["servers"], ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> one =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    ServerId server = 0;
    if (!absl::SimpleAtoi(one.first, &server)) return Damaged(path, "servers is no list of them");
    identity.servers[server] = std::string(one.second);
  }
  identity.clean_shutdown = clean == 1;
  identity.made = made == 1;
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
  std::string text = absl::StrCat(
      kFirstLine, "\nversion: ", kDataFormatVersion, "\nserver: ", server,
      "\ncluster: ", cluster_id, "\ngeneration: ", generation,
      "\nclean_shutdown: ", clean_shutdown ? 1 : 0, "\nboot: ", boot_id, "\nmade: ", made ? 1 : 0,
      "\nstart: ", start, "\nrun: ", run, "\nruns_before: ", absl::StrJoin(runs_before, " "),
      "\nservers: ", absl::StrJoin(servers, " ", absl::PairFormatter("=")), "\n");
  absl::StrAppend(&text, kChecksumKey, Crc32c(text.data(), text.size()), "\n");
  return files->WriteAtomically(path, text);
}

void IdentityFile::NextRun(uint64_t id) {
  start += 1;
  if (run != 0) runs_before.push_back(run);
  run = id;
  // The first is the one that has registered for certain.
  if (runs_before.size() > kRunsBeforeMax) runs_before.erase(runs_before.begin() + 1);
}

std::string BootId(FileSystem* files) {
  char bytes[64];
  const absl::StatusOr<uint64_t> got =
      files->ReadAt("/proc/sys/kernel/random/boot_id", 0, sizeof(bytes), bytes);
  if (!got.ok()) return "";
  return std::string(absl::StripAsciiWhitespace(absl::string_view(bytes, *got)));
}

}  // namespace hotbed
