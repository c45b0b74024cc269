#include "server/shard_log/log_spares.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/shard_log/newest_segment.h"

namespace hotbed {
namespace {

constexpr absl::string_view kSuffix = ".spare";

template <typename Spares>
uint64_t BytesOf(const Spares& spares) {
  uint64_t bytes = 0;
  for (const auto& spare : spares) bytes += spare.bytes;
  return bytes;
}

}  // namespace

void LogSpares::DeleteLeft() {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(dir_);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    absl::string_view segment = name;
    if (!absl::ConsumeSuffix(&segment, kSuffix) || !ParseSegmentName(segment).has_value()) continue;
    const absl::Status status = files_->Delete(absl::StrCat(dir_, "/", name));
    if (!status.ok())
      HOTBED_LOG(Warning) << "the log leaves a file that it needs no more: " << status;
  }
}

bool LogSpares::Rename(const std::string& path, const std::vector<Spare>& others, Spare* kept) {
  const absl::StatusOr<uint64_t> bytes = files_->FileSize(path);
  const absl::StatusOr<uint64_t> free = files_->FreeBytes(dir_);
  if (!bytes.ok() || !free.ok() || *bytes < bytes_min_) return false;
  {
    absl::MutexLock lock(&mu_);
    if (spares_.size() + others.size() >= kCountMax) return false;
    if (*free < BytesOf(spares_) + BytesOf(others) + *bytes) return false;
  }
  *kept = {absl::StrCat(path, kSuffix), *bytes};
  return files_->Rename(path, kept->path).ok();
}

void LogSpares::KeepOrDelete(const std::vector<std::string>& paths) {
  DeleteGivenUp();
  std::vector<Spare> kept;
  for (const std::string& path : paths) {
    Spare spare;
    if (Rename(path, kept, &spare)) {
      kept.push_back(std::move(spare));
      continue;
    }
    const absl::Status status = files_->Delete(path);
    if (!status.ok() && !absl::IsNotFound(status))
      HOTBED_LOG(Warning) << "the log keeps a file that it needs no more: " << status;
  }
  if (kept.empty()) return;
  if (const absl::Status synced = files_->SyncDir(dir_); !synced.ok()) {
    HOTBED_LOG(Warning) << "the log deletes segments that it would have used again: " << synced;
    for (const Spare& spare : kept) (void)files_->Delete(spare.path);
    return;
  }
  absl::MutexLock lock(&mu_);
  for (Spare& spare : kept) spares_.push_back(std::move(spare));
}

// The file has its new header before it has its new name.
LogSpares::Reused LogSpares::Reuse(SegmentHeader header, bool sync, const std::string& path,
                                   uint64_t bytes_most) {
  header.reused = true;
  Spare spare;
  {
    absl::MutexLock lock(&mu_);
    if (spares_.empty()) return {SegmentOrigin::kNone};
    // The one used last: the system keeps its pages longest.
    size_t at = spares_.size();
    while (at > 0 && spares_[at - 1].bytes > bytes_most) --at;
    if (at == 0) at = spares_.size();
    spare = std::move(spares_[at - 1]);
    spares_.erase(spares_.begin() + static_cast<std::ptrdiff_t>(at - 1));
  }
  SegmentOrigin why_not = SegmentOrigin::kTooLong;
  if (spare.bytes <= bytes_most) {
    why_not = files_->InMemory(spare.path) ? SegmentOrigin::kRefused : SegmentOrigin::kEvicted;
  }
  if (why_not == SegmentOrigin::kRefused) {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->OpenAt(spare.path, 0);
    absl::Status status = file.status();
    if (status.ok()) status = WriteSegmentHeader(header, sync, file->get());
    if (status.ok()) status = files_->Rename(spare.path, path);
    if (status.ok()) return {SegmentOrigin::kReused, spare.bytes};
    HOTBED_LOG(Warning) << "the log begins a new file instead of " << spare.path << ": " << status;
  }
  absl::MutexLock lock(&mu_);
  given_up_.push_back(std::move(spare));
  return {why_not};
}

void LogSpares::Delete() {
  DeleteGivenUp();
  std::vector<Spare> spares;
  {
    absl::MutexLock lock(&mu_);
    spares.swap(spares_);
  }
  for (const Spare& spare : spares) (void)files_->Delete(spare.path);
}

void LogSpares::DeleteGivenUp() {
  std::vector<Spare> spares;
  {
    absl::MutexLock lock(&mu_);
    spares.swap(given_up_);
  }
  for (const Spare& spare : spares) (void)files_->Delete(spare.path);
}

void LogSpares::DeleteIfShort() {
  const uint64_t taken = bytes();
  if (taken == 0) return;
  const absl::StatusOr<uint64_t> free = files_->FreeBytes(dir_);
  if (free.ok() && *free < taken) Delete();
}

uint64_t LogSpares::bytes() const {
  absl::MutexLock lock(&mu_);
  return BytesOf(spares_) + BytesOf(given_up_);
}

}  // namespace hotbed
