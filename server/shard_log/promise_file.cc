#include "server/shard_log/promise_file.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "server/shard_log/other_version.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr char kPromiseMagic[9] = "HOTBDPRM";
constexpr uint32_t kVersion = 2;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kPromiseBytes = 20;  // without the holders

template <typename T>
void AppendLittle(std::string* out, T value) {
  char bytes[sizeof(T)];
  StoreLittle(bytes, value);
  out->append(bytes, sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromiseFile>> PromiseFile::Open(KeptFile file, bool make) {
  const absl::StatusOr<std::string> bytes = file.Read();
  if (absl::IsNotFound(bytes.status()) && !make) {
    return absl::DataLossError(absl::StrCat(
        bytes.status().message(), ", and this directory has been a server's: it is missing"));
  }
  if (!bytes.ok() && !absl::IsNotFound(bytes.status())) return bytes.status();
  Map promises;
  if (bytes.ok()) {
    HOTBED_ASSIGN_OR_RETURN(promises, Parse(file.path(), *bytes));
    return std::unique_ptr<PromiseFile>(new PromiseFile(std::move(file), std::move(promises)));
  }
  auto made = std::unique_ptr<PromiseFile>(new PromiseFile(std::move(file), {}));
  absl::MutexLock lock(&made->mu_);
  HOTBED_RETURN_IF_ERROR(made->Replace({}));
  return made;
}

absl::StatusOr<PromiseFile::Map> PromiseFile::Parse(const std::string& path,
                                                    absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes + 4 || std::memcmp(bytes.data(), kPromiseMagic, 8) != 0) {
    return absl::DataLossError(
        absl::StrCat(path, " is no promise file (", bytes.size(), " bytes)"));
  }
  const uint32_t version = LoadLittle<uint32_t>(&bytes[8]);
  const uint32_t count = LoadLittle<uint32_t>(&bytes[12]);
  const size_t crc_at = bytes.size() - 4;
  const bool intact = LoadLittle<uint32_t>(&bytes[crc_at]) == Crc32c(bytes.data(), crc_at);
  if (version != kVersion) return OtherVersion(path, version, kVersion, intact);
  Map promises;
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; intact && i < count && crc_at - at >= kPromiseBytes; ++i) {
    Promise promise = {ShardId::FromPacked(LoadLittle<uint64_t>(&bytes[at])),
                       LoadLittle<uint64_t>(&bytes[at + 8]),
                       {}};
    size_t holders = LoadLittle<uint32_t>(&bytes[at + 16]);
    at += kPromiseBytes;
    for (; holders > 0 && crc_at - at >= sizeof(ServerId); --holders, at += sizeof(ServerId)) {
      promise.holders.push_back(LoadLittle<ServerId>(&bytes[at]));
    }
    if (holders > 0) break;
    promises.emplace(promise.shard, std::move(promise));
  }
  if (!intact || at != crc_at || promises.size() != count) {
    return absl::DataLossError(
        absl::StrCat(path,
                     " fails its checksum: this server no longer knows its promises and must not "
                     "act on any shard"));
  }
  return promises;
}

PromiseFile::Promise PromiseFile::Find(ShardId shard) const {
  absl::MutexLock lock(&mu_);
  const auto found = promises_.find(shard);
  return found == promises_.end() ? Promise{shard, 0, {}} : found->second;
}

absl::Status PromiseFile::Replace(Map promises) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + kPromiseBytes * promises.size() + 4);
  bytes.append(kPromiseMagic, 8);
  AppendLittle(&bytes, kVersion);
  AppendLittle(&bytes, static_cast<uint32_t>(promises.size()));
  for (const auto& [shard, promise] : promises) {
    AppendLittle(&bytes, shard.packed());
    AppendLittle(&bytes, promise.epoch);
    AppendLittle(&bytes, static_cast<uint32_t>(promise.holders.size()));
    for (const ServerId server : promise.holders) AppendLittle(&bytes, server);
  }
  AppendLittle(&bytes, Crc32c(bytes.data(), bytes.size()));
  if (promises.empty() || !PlantedBug("promise_not_persisted")) {
    HOTBED_RETURN_IF_ERROR(file_.Write(bytes));
  }
  promises_ = std::move(promises);
  return absl::OkStatus();
}

absl::Status PromiseFile::Raise(absl::Span<const Promise> batch) {
  absl::MutexLock lock(&mu_);
  Map raised = promises_;
  bool changed = false;
  for (const Promise& promise : batch) {
    Promise& known = raised[promise.shard];
    const bool news = !promise.holders.empty() && promise.holders != known.holders;
    if (promise.epoch < known.epoch || (promise.epoch == known.epoch && !news)) continue;
    known = promise;
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
