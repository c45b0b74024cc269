// FetchCheckpoint: copies a checkpoint from the servers' own disks, several files at a time. A file
// that is whole at its end already is left alone.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_file.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/files/crc32c.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "hotbed/checkpoint.h"
#include "places/place_finder.h"
#include "places/servers_path.h"

namespace hotbed {
namespace {

constexpr size_t kFilesAtOnce = 4;
constexpr size_t kErrorsShown = 3;
constexpr absl::Duration kFetchLook = absl::Milliseconds(100);
constexpr char kFetchingFile[] = "fetching";  // locked by the fetch at work in a directory

class Fetcher {
 public:
  // All outlive it.
  Fetcher(const FetchOptions& options, Place* from, Place* to)
      : options_(options), from_(*from), to_(*to) {}

  absl::StatusOr<FetchedCheckpoint> Fetch() {
    HOTBED_ASSIGN_OR_RETURN(source_, FindCheckpoint(options_.checkpoint, &from_));
    HOTBED_ASSIGN_OR_RETURN(manifest_, ReadManifest(source_, &from_));
    HOTBED_RETURN_IF_ERROR(CheckNames());
    for (v1::CheckpointTable& table : *manifest_.mutable_tables()) {
      for (v1::CheckpointShard& shard : *table.mutable_shards()) {
        shards_.push_back(shard);
        shard.clear_server();
        total_bytes_ += shard.bytes();
      }
    }
    fetched_.path = absl::StrCat(options_.directory, "/", manifest_.name());
    HOTBED_RETURN_IF_ERROR(PrepareFolder());
    const absl::Status copied = CopyFiles();
    if (copied.ok()) HOTBED_RETURN_IF_ERROR(MakeWhole());
    lock_.reset();
    HOTBED_RETURN_IF_ERROR(copied);
    return fetched_;
  }

 private:
  // No file of a manifest leads out of the folder.
  absl::Status CheckNames() const {
    absl::Status wrong = CheckServersPath(source_);
    if (source_.substr(source_.rfind('/') + 1) != manifest_.name()) {
      wrong.Update(absl::DataLossError(
          absl::StrCat("its manifest is of the checkpoint \"", manifest_.name(), "\"")));
    }
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      for (const v1::CheckpointShard& shard : table.shards()) {
        wrong.Update(CheckServersPath(absl::StrCat(source_, "/", shard.file())));
        if (absl::StrContains(shard.file(), '/')) wrong.Update(absl::DataLossError(shard.file()));
      }
    }
    if (wrong.ok()) return wrong;
    return absl::DataLossError(absl::StrCat(source_, ": ", wrong.message()));
  }

  std::string In(const std::string& file) const { return absl::StrCat(fetched_.path, "/", file); }

  // By this mark a fetch knows a folder that an earlier fetch of the same checkpoint began.
  std::string MarkOf(int64_t unix_ms) const {
    const std::string text = ManifestText(manifest_);
    return SavingMark(unix_ms, Crc32c(text.data(), text.size()), "");
  }

  absl::Status PrepareFolder() {
    const std::string mark = MarkOf(absl::ToUnixMillis(absl::Now()));
    const absl::Status made =
        MakeCheckpointFolder(options_.directory, manifest_.name(), mark, &to_).status();
    if (absl::IsAlreadyExists(made)) {
      HOTBED_RETURN_IF_ERROR(CheckOwnFolder());
      HOTBED_RETURN_IF_ERROR(Lock());
      return to_.Put(In(kSavingFile), mark);  // 'prune' counts from now
    }
    HOTBED_RETURN_IF_ERROR(made);
    return Lock();
  }

  // The folder that is there is of a fetch of this checkpoint.
  absl::Status CheckOwnFolder() {
    const absl::StatusOr<std::string> there = to_.ReadAll(In(kManifestFile));
    if (there.ok() && *there == ManifestText(manifest_)) return absl::OkStatus();
    if (absl::IsNotFound(there.status())) {
      const absl::StatusOr<std::string> mark = to_.ReadAll(In(kSavingFile));
      const auto entries = to_.List(fetched_.path);
      if (entries.ok() && entries->empty()) return absl::OkStatus();  // killed at its begin
      int64_t unix_ms = 0;
      if (mark.ok() && absl::SimpleAtoi(mark->substr(0, mark->find(' ')), &unix_ms) &&
          *mark == MarkOf(unix_ms)) {
        return absl::OkStatus();
      }
    } else if (!there.ok()) {
      return there.status();
    }
    return absl::AlreadyExistsError(
        absl::StrCat(fetched_.path, " exists already, and is not a fetch of ", source_,
                     " that was broken off; fetch into another directory, or delete the folder"));
  }

  absl::Status Lock() {
    if (NamesObjectStore(fetched_.path)) return absl::OkStatus();
    auto lock = FileSystem::Real()->Lock(In(kFetchingFile));
    if (absl::IsAlreadyExists(lock.status())) {
      return absl::AbortedError(absl::StrCat("another fetch is at work in ", fetched_.path, ": ",
                                             lock.status().message()));
    }
    HOTBED_RETURN_IF_ERROR(lock.status());
    lock_ = *std::move(lock);
    return absl::OkStatus();
  }

  absl::Status CopyFiles() {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < std::min(kFilesAtOnce, shards_.size()); ++i) {
      threads.emplace_back([this] { Work(); });
    }
    while (!AwaitFiles()) {
      TellProgress();
      if (!options_.stop || !options_.stop()) continue;
      absl::MutexLock lock(&mu_);
      broken_.Update(absl::CancelledError(absl::StrCat("the fetch was broken off. ", StaysText())));
    }
    for (std::thread& thread : threads) thread.join();
    absl::MutexLock lock(&mu_);
    HOTBED_RETURN_IF_ERROR(broken_);
    if (errors_.empty()) return absl::OkStatus();
    std::vector<std::string> shown;
    for (const absl::Status& error : errors_) {
      if (shown.size() < kErrorsShown) shown.emplace_back(error.message());
    }
    return absl::Status(
        errors_[0].code(),
        absl::StrCat(errors_.size(), " of ", shards_.size(), " files were not fetched: ",
                     absl::StrJoin(shown, "; "), errors_.size() > shown.size() ? "; ..." : "",
                     ". The others are in ", fetched_.path, "; fetch again to bring the rest"));
  }

  // True: every file was tried, or the fetch is broken off.
  bool AwaitFiles() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return ended_ == shards_.size() || !broken_.ok();
    };
    return AwaitFor(&mu_, absl::Condition(&ended), kFetchLook);
  }

  void TellProgress() ABSL_LOCKS_EXCLUDED(mu_) {
    if (!options_.progress) return;
    CheckpointProgress progress;
    {
      absl::MutexLock lock(&mu_);
      progress.shards_done = fetched_.files;
      progress.bytes_done = done_bytes_;
    }
    progress.shards = shards_.size();
    progress.bytes = total_bytes_;
    options_.progress(progress);
  }

  void Work() {
    for (;;) {
      size_t number = 0;
      {
        absl::MutexLock lock(&mu_);
        if (next_ == shards_.size() || !broken_.ok()) return;
        number = next_++;
      }
      const v1::CheckpointShard& shard = shards_[number];
      const absl::Status copied = Bring(shard);
      absl::MutexLock lock(&mu_);
      ++ended_;
      if (copied.ok()) {
        ++fetched_.files;
        fetched_.bytes += shard.bytes();
      } else if (broken_.ok()) {
        errors_.emplace_back(copied.code(),
                             absl::StrCat(shard.file(), ", which server ", shard.server(),
                                          " wrote: ", copied.message()));
      }
    }
  }

  absl::Status Bring(const v1::CheckpointShard& shard) {
    HOTBED_ASSIGN_OR_RETURN(const bool there, IsThere(shard));
    if (there) return absl::OkStatus();
    HOTBED_ASSIGN_OR_RETURN(const auto reader,
                            RowsFileReader::Open(absl::StrCat(source_, "/", shard.file()),
                                                 shard.bytes(), shard.index_crc(), &from_));
    // An error of the place to which files go ends the fetch: the other files would meet it too.
    absl::StatusOr<std::unique_ptr<PlaceWriter>> writer = to_.Create(In(shard.file()));
    if (!writer.ok()) return BreakOff(writer.status());
    absl::Status copied = reader->VisitBytes([&](absl::string_view bytes) {
      HOTBED_RETURN_IF_ERROR(GoOn(bytes.size()));
      const absl::Status appended = (*writer)->Append({&bytes, 1});
      return appended.ok() ? appended : BreakOff(appended);
    });
    if (copied.ok()) {
      copied = (*writer)->Finish();
      if (!copied.ok()) return BreakOff(copied);
    }
    writer->reset();
    if (!copied.ok()) {
      (void)to_.Delete(fetched_.path, {shard.file()});
      return copied;
    }
    absl::MutexLock lock(&mu_);
    ++fetched_.files_fetched;
    fetched_.bytes_fetched += shard.bytes();
    return copied;
  }

  // Deletes the file if it is not whole.
  absl::StatusOr<bool> IsThere(const v1::CheckpointShard& shard) {
    const auto reader =
        RowsFileReader::Open(In(shard.file()), shard.bytes(), shard.index_crc(), &to_);
    if (absl::IsNotFound(reader.status())) return false;
    uint64_t read = 0;
    absl::Status whole = reader.status();
    if (whole.ok()) {
      whole = (*reader)->VisitBytes([&](absl::string_view bytes) {
        read += bytes.size();
        return GoOn(bytes.size());
      });
    }
    if (whole.ok()) return true;
    const bool damaged = absl::IsDataLoss(whole) || absl::IsFailedPrecondition(whole);
    if (!damaged) return BreakOff(whole);
    TakeBack(read);
    const absl::Status deleted = to_.Delete(fetched_.path, {shard.file()});
    if (!deleted.ok()) return BreakOff(deleted);
    return false;
  }

  absl::Status GoOn(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    HOTBED_RETURN_IF_ERROR(broken_);
    done_bytes_ += bytes;
    return absl::OkStatus();
  }
  void TakeBack(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    done_bytes_ -= bytes;
  }
  absl::Status BreakOff(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    broken_.Update(absl::Status(error.code(), absl::StrCat("the files cannot be kept: ",
                                                           error.message(), ". ", StaysText())));
    return broken_;
  }
  std::string StaysText() const {
    return absl::StrCat("What came is in ", fetched_.path, ", and another fetch goes on with it");
  }

  absl::Status MakeWhole() {
    HOTBED_ASSIGN_OR_RETURN(const auto entries, to_.List(fetched_.path));
    std::map<std::string, uint64_t> there;
    for (const Place::Entry& entry : entries) there[entry.name] = entry.bytes;
    for (const v1::CheckpointShard& shard : shards_) {
      const auto it = there.find(shard.file());
      if (it != there.end() && it->second == shard.bytes()) continue;
      return absl::AbortedError(
          absl::StrCat(In(shard.file()), " was changed while others were fetched; fetch again"));
    }
    HOTBED_RETURN_IF_ERROR(WriteManifest(fetched_.path, manifest_, &to_));
    std::vector<std::string> over = {kSavingFile};
    if (lock_ != nullptr) over.emplace_back(kFetchingFile);
    return to_.Delete(fetched_.path, over);
  }

  const FetchOptions& options_;
  Place& from_;
  Place& to_;
  std::string source_;               // the checkpoint's folder
  v1::CheckpointManifest manifest_;  // as it will be
  std::vector<v1::CheckpointShard> shards_;
  uint64_t total_bytes_ = 0;
  std::unique_ptr<WritableFile> lock_;
  absl::Mutex mu_;
  // Before and after the threads, without mu_.
  FetchedCheckpoint fetched_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // in shards_
  size_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Status> errors_ ABSL_GUARDED_BY(mu_);  // of single files
};

absl::StatusOr<FetchedCheckpoint> Fetch(const FetchOptions& options, CheckpointCluster* cluster) {
  FetchOptions canonical = options;
  HOTBED_ASSIGN_OR_RETURN(canonical.checkpoint, PlacePath(options.checkpoint));
  HOTBED_ASSIGN_OR_RETURN(canonical.directory, PlacePath(options.directory));
  if (!NamesServersDisks(canonical.checkpoint)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.checkpoint,
                     " is not on servers' disks: a fetch is of server:NAME or "
                     "server:NAME/CHECKPOINT"));
  }
  if (NamesServersDisks(canonical.directory)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a fetch brings files into a directory or s3://BUCKET/PREFIX, not into ",
                     options.directory));
  }
  HOTBED_ASSIGN_OR_RETURN(Place* const from, cluster->PlaceOf(canonical.checkpoint));
  HOTBED_ASSIGN_OR_RETURN(Place* const to, cluster->PlaceOf(canonical.directory));
  return Fetcher(canonical, from, to).Fetch();
}

}  // namespace

absl::StatusOr<FetchedCheckpoint> FetchCheckpoint(const std::string& target,
                                                  const FetchOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const auto cluster, GrpcCheckpointCluster::Connect(target));
  return Fetch(options, cluster.get());
}

absl::StatusOr<FetchedCheckpoint> FetchCheckpoint(Client* client, const FetchOptions& options) {
  const auto cluster = static_cast<ClientImpl*>(client)->WholeTables();
  return Fetch(options, cluster.get());
}

}  // namespace hotbed
