#include "server/shard_log/promise_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/byte_order.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "server/shard_log/other_version.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr char kPromiseMagic[9] = "HOTBDPRM";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kPromiseBytes = 16;

template <typename T>
void AppendLittle(std::string* out, T value) {
  char bytes[sizeof(T)];
  StoreLittle(bytes, value);
  out->append(bytes, sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromiseFile>> PromiseFile::Open(const std::string& path,
                                                               FileSystem* files) {
  Map promises;
  if (files->Exists(path)) {
    HOTBED_ASSIGN_OR_RETURN(const std::string bytes, files->ReadAll(path));
    if (bytes.size() < kHeaderBytes + 4 || std::memcmp(bytes.data(), kPromiseMagic, 8) != 0) {
      return absl::DataLossError(
          absl::StrCat(path, " is no promise file (", bytes.size(), " bytes)"));
    }
    const uint32_t version = LoadLittle<uint32_t>(&bytes[8]);
    const uint32_t count = LoadLittle<uint32_t>(&bytes[12]);
    const size_t crc_at = bytes.size() - 4;
    const bool intact = LoadLittle<uint32_t>(&bytes[crc_at]) == Crc32c(bytes.data(), crc_at);
    if (version != kVersion) {
      return OtherVersion(path, version, kVersion, intact);
    }
    if (!intact || crc_at != kHeaderBytes + kPromiseBytes * static_cast<size_t>(count)) {
      return absl::DataLossError(absl::StrCat(
          path,
          " fails its checksum: this server no longer knows its promises and must not act on "
          "any shard; join again with an empty data directory"));
    }
    for (size_t at = kHeaderBytes; at < crc_at; at += kPromiseBytes) {
      promises[ShardId::FromPacked(LoadLittle<uint64_t>(&bytes[at]))] =
          LoadLittle<uint64_t>(&bytes[at + 8]);
    }
  }
  return std::unique_ptr<PromiseFile>(new PromiseFile(path, files, std::move(promises)));
}

Epoch PromiseFile::Get(ShardId shard) const {
  absl::MutexLock lock(&mu_);
  const auto found = promises_.find(shard);
  return found == promises_.end() ? 0 : found->second;
}

absl::Status PromiseFile::Replace(Map promises) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + kPromiseBytes * promises.size() + 4);
  bytes.append(kPromiseMagic, 8);
  AppendLittle(&bytes, kVersion);
  AppendLittle(&bytes, static_cast<uint32_t>(promises.size()));
  for (const auto& [shard, epoch] : promises) {
    AppendLittle(&bytes, shard.packed());
    AppendLittle(&bytes, epoch);
  }
  AppendLittle(&bytes, Crc32c(bytes.data(), bytes.size()));
  if (!PlantedBug("promise_not_persisted")) {
    HOTBED_RETURN_IF_ERROR(files_->WriteAtomically(path_, bytes));
  }
  promises_ = std::move(promises);
  return absl::OkStatus();
}

absl::Status PromiseFile::Raise(absl::Span<const Promise> batch) {
  absl::MutexLock lock(&mu_);
  Map raised = promises_;
  bool changed = false;
  for (const Promise& promise : batch) {
    Epoch& epoch = raised[promise.shard];
    if (epoch >= promise.epoch) continue;
    epoch = promise.epoch;
    changed = true;
  }
  return changed ? Replace(std::move(raised)) : absl::OkStatus();
}

absl::Status PromiseFile::ForgetTable(TableId table) {
  absl::MutexLock lock(&mu_);
  Map kept = promises_;
  const size_t erased =
      absl::erase_if(kept, [table](const auto& entry) { return entry.first.table == table; });
  return erased > 0 ? Replace(std::move(kept)) : absl::OkStatus();
}

}  // namespace hotbed
