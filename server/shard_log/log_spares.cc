// The part of the log writer that keeps files of segments that no shard needs, and begins new
// segments in them: their blocks are written already and their pages are in memory, so an append
// costs the copy of its bytes alone, and no new pages, and a sync has no metadata to write.
//
// A file of a new segment must never come back under its older name with its new bytes, so the
// directory is synced before a spare is used. Spares are worth nothing to anybody else: they go when
// the disk is short of space, at the end of the process, and at the next start.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/shard_log/log_writer.h"

namespace hotbed {
namespace {

constexpr absl::string_view kSpareSuffix = ".spare";

template <typename Spares>
uint64_t BytesOf(const Spares& spares) {
  uint64_t bytes = 0;
  for (const auto& spare : spares) bytes += spare.bytes;
  return bytes;
}

}  // namespace

absl::Status DeleteLeftSpares(const std::string& dir, FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(dir));
  for (const std::string& name : names) {
    if (absl::EndsWith(name, kSpareSuffix)) {
      HOTBED_RETURN_IF_ERROR(files->Delete(absl::StrCat(dir, "/", name)));
    }
  }
  return absl::OkStatus();
}

std::optional<LogWriter::Spare> LogWriter::KeepAsSpare(const std::string& path,
                                                       absl::Span<const Spare> kept) {
  // Only the marks tell recovery where the records of a reused file end.
  if (options_.marks == nullptr) return std::nullopt;
  const absl::StatusOr<uint64_t> bytes = files_->FileSize(path);
  const absl::StatusOr<uint64_t> free = files_->FreeBytes(options_.dir);
  if (!bytes.ok() || !free.ok()) return std::nullopt;
  // Emptied and cut ones are not worth it.
  if (*bytes < std::min(options_.segment_bytes, kSegmentBytesMin) / 2) return std::nullopt;
  {
    absl::MutexLock lock(&mu_);
    if (spares_.size() + kept.size() >= kSegmentsOfLog) return std::nullopt;
    if (*free < BytesOf(spares_) + BytesOf(kept) + *bytes) return std::nullopt;
  }
  Spare spare{absl::StrCat(path, kSpareSuffix), *bytes};
  if (!files_->Rename(path, spare.path).ok()) return std::nullopt;
  return spare;
}

void LogWriter::AddSpares(std::vector<Spare> spares) {
  if (spares.empty()) return;
  if (const absl::Status synced = files_->SyncDir(options_.dir); !synced.ok()) {
    HOTBED_LOG(Warning) << "the log deletes segments that it would have used again: " << synced;
    for (const Spare& spare : spares) (void)files_->Delete(spare.path);
    return;
  }
  absl::MutexLock lock(&mu_);
  for (Spare& spare : spares) spares_.push_back(std::move(spare));
}

void LogWriter::DeleteSpares(bool all) {
  std::vector<Spare> spares;
  {
    absl::MutexLock lock(&mu_);
    if (spares_.empty()) return;
    const absl::StatusOr<uint64_t> free = files_->FreeBytes(options_.dir);
    if (!all && free.ok() && *free >= BytesOf(spares_)) return;
    spares.swap(spares_);
  }
  for (const Spare& spare : spares) (void)files_->Delete(spare.path);
}

// The file has its new header before it has its new name.
bool LogWriter::ReuseSpare(SegmentHeader header, const std::string& path) {
  header.reused = true;
  while (true) {
    Spare spare;
    {
      absl::MutexLock lock(&mu_);
      if (spares_.empty()) return false;
      spare = std::move(spares_.back());  // the one used last: the system keeps its pages longest
      spares_.pop_back();
    }
    if (files_->InMemory(spare.path)) {
      absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->OpenAt(spare.path, 0);
      absl::Status status = file.status();
      if (status.ok()) status = WriteHeader(header, file->get());
      if (status.ok()) status = files_->Rename(spare.path, path);
      if (status.ok()) return true;
      HOTBED_LOG(Warning) << "the log begins a new file instead of " << spare.path << ": "
                          << status;
    }
    (void)files_->Delete(spare.path);
  }
}

}  // namespace hotbed
