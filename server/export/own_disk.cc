#include "server/export/own_disk.h"

#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "places/servers_path.h"

namespace hotbed {
namespace {

constexpr absl::Duration kOwnDiskLook = absl::Milliseconds(500);
constexpr absl::Duration kOwnDiskMemoryLook = absl::Milliseconds(5);
constexpr uint64_t kOwnDiskAnswerCopies = 3;  // reply, message, and gRPC's copy of it
constexpr char kPart[] = ".part";

// A piece of a file that becomes visible with the last one. A client that was cut off begins again
// at 0.
absl::Status PutPiece(const std::string& path, const v1::ChangeFilesRequest& request,
                      FileSystem* files) {
  const std::string folder = ParentOf(path);
  if (!files->Exists(folder)) return absl::NotFoundError(absl::StrCat("there is no ", folder));
  if (request.offset() == 0 && request.last()) {
    return files->WriteAtomically(path, request.content());
  }
  const std::string part = absl::StrCat(path, kPart);
  if (request.offset() == 0 && files->Exists(part)) HOTBED_RETURN_IF_ERROR(files->Delete(part));
  const uint64_t there = files->Exists(part) ? files->FileSize(part).value_or(0) : 0;
  if (there != request.offset()) {
    return absl::AbortedError(absl::StrCat(part, " has ", there,
                                           " bytes, the next piece begins at ", request.offset(),
                                           "; begin again"));
  }
  HOTBED_ASSIGN_OR_RETURN(const auto file, files->OpenAppend(part));
  const iovec piece = {const_cast<char*>(request.content().data()), request.content().size()};
  HOTBED_RETURN_IF_ERROR(file->Append({&piece, 1}));
  HOTBED_RETURN_IF_ERROR(file->Close());
  if (!request.last()) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const std::string all, files->ReadAll(part));
  HOTBED_RETURN_IF_ERROR(files->WriteAtomically(path, all));
  return files->Delete(part);
}

absl::Status DeleteFiles(const std::string& root, const v1::ChangeFilesRequest& request,
                         FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::string folder, PathBelow(root, request.path()));
  std::vector<std::string> paths;  // all are checked before one is deleted
  for (const std::string& file : request.files()) {
    HOTBED_ASSIGN_OR_RETURN(paths.emplace_back(),
                            PathBelow(root, absl::StrCat(request.path(), "/", file)));
  }
  for (const std::string& path : paths) {
    if (files->Exists(path)) HOTBED_RETURN_IF_ERROR(files->Delete(path));
  }
  return files->Exists(folder) ? files->SyncDir(folder) : absl::OkStatus();
}

}  // namespace

absl::Status MakeOwnFolder(const std::string& root, const std::string& path, FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::string folder, PathBelow(root, path));
  if (files->Exists(folder)) return absl::AlreadyExistsError(absl::StrCat(path, " exists already"));
  HOTBED_RETURN_IF_ERROR(files->MakeDir(folder));
  // The folders above may be new, too.
  for (std::string at = folder; at.size() >= root.size(); at = ParentOf(at)) {
    HOTBED_RETURN_IF_ERROR(files->SyncDir(ParentOf(at)));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ReadFilesReply> ReadOwnFiles(const std::string& root,
                                                const v1::ReadFilesRequest& request,
                                                FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::string path, PathBelow(root, request.path()));
  if (!files->Exists(path)) {
    return absl::NotFoundError(absl::StrCat(request.path(), " is not there"));
  }
  v1::ReadFilesReply reply;
  if (request.list()) {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(path));
    for (const std::string& name : names) {
      v1::ReadFilesReply::Entry& entry = *reply.add_entries();
      entry.set_name(name);
      entry.set_bytes(files->FileSize(absl::StrCat(path, "/", name)).value_or(0));
    }
    return reply;
  }
  HOTBED_ASSIGN_OR_RETURN(const uint64_t size, files->FileSize(path));
  reply.set_file_bytes(size);
  std::string& content = *reply.mutable_content();
  content.resize(std::min(request.bytes(), kOwnDiskReadBytesMax));
  if (content.empty()) return reply;
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got,
                          files->ReadAt(path, request.offset(), content.size(), content.data()));
  content.resize(got);
  return reply;
}

absl::Status ChangeOwnFiles(const std::string& root, const v1::ChangeFilesRequest& request,
                            FileSystem* files) {
  HOTBED_ASSIGN_OR_RETURN(const std::string path, PathBelow(root, request.path()));
  switch (request.action()) {
    case v1::ChangeFilesRequest::MAKE_FOLDER:
      return MakeOwnFolder(root, request.path(), files);
    case v1::ChangeFilesRequest::PUT:
      return PutPiece(path, request, files);
    case v1::ChangeFilesRequest::DELETE:
      return DeleteFiles(root, request, files);
    case v1::ChangeFilesRequest::DELETE_FOLDER:
      if (!files->Exists(path)) return absl::OkStatus();
      HOTBED_RETURN_IF_ERROR(files->Delete(path));
      return files->SyncDir(ParentOf(path));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("action ", request.action(), " is not known to this server"));
  }
}

OwnDisk::OwnDisk(std::string root, std::shared_ptr<ChangeMemory> memory, FileSystem* files)
    : root_(std::move(root)), memory_(std::move(memory)), files_(files) {
  thread_ = std::thread([this] { Work(); });
}

void OwnDisk::Stop() {
  std::deque<Waiting> waiting;
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
    waiting.swap(waiting_);
  }
  for (const Waiting& call : waiting) {
    call.done(absl::UnavailableError("this server is stopping"), nullptr);
  }
  if (thread_.joinable()) thread_.join();
}

void OwnDisk::Enter(Waiting call) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    if (stops_) {
      refused = absl::UnavailableError("this server is stopping");
    } else if (waiting_.size() >= kOwnDiskCallsMax) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          waiting_.size(), " calls for files wait at this server, the limit; ask again"));
    } else {
      waiting_.push_back(std::move(call));
      return;
    }
  }
  call.done(refused, nullptr);
}

void OwnDisk::Read(const v1::ReadFilesRequest& request, ToolCalls::Done done) {
  const auto answer = [this, request]() -> absl::StatusOr<std::string> {
    HOTBED_ASSIGN_OR_RETURN(const v1::ReadFilesReply reply, ReadOwnFiles(root_, request, files_));
    return reply.SerializeAsString();
  };
  const uint64_t bytes = std::min(request.bytes(), kOwnDiskReadBytesMax) * kOwnDiskAnswerCopies;
  Enter({answer, bytes, std::move(done)});
}

void OwnDisk::Change(const v1::ChangeFilesRequest& request, ToolCalls::Done done) {
  const auto answer = [this, request]() -> absl::StatusOr<std::string> {
    HOTBED_RETURN_IF_ERROR(ChangeOwnFiles(root_, request, files_));
    return v1::ChangeFilesReply().SerializeAsString();
  };
  Enter({answer, 0, std::move(done)});
}

void OwnDisk::Work() {
  for (;;) {
    Waiting call;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !waiting_.empty();
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kOwnDiskLook);
      if (stops_) return;
      if (waiting_.empty()) continue;
      call = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Answer(call);
  }
}

void OwnDisk::Answer(const Waiting& call) {
  while (!memory_->TakeForAnswer(call.bytes)) {
    absl::MutexLock lock(&mu_);
    if (AwaitFor(&mu_, absl::Condition(&stops_), kOwnDiskMemoryLook)) {
      return call.done(absl::UnavailableError("this server is stopping"), nullptr);
    }
  }
  const std::shared_ptr<const void> held(
      nullptr,
      [memory = memory_, bytes = call.bytes](const void*) { memory->GiveFromAnswer(bytes); });
  call.done(call.answer(), held);
}

}  // namespace hotbed
