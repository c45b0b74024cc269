#include "tests/common/fault_file_system.h"

#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status Missing(absl::string_view action, absl::string_view path) {
  return absl::NotFoundError(absl::StrCat("cannot ", action, " ", path, ": no such file"));
}

absl::Status InputOutputError(absl::string_view action, absl::string_view path) {
  return absl::InternalError(absl::StrCat("cannot ", action, " ", path, ": injected I/O error"));
}

}  // namespace

class FaultFileSystem::File : public WritableFile {
 public:
  File(FaultFileSystem* file_system, uint64_t generation, std::string path,
       std::shared_ptr<Content> content, uint64_t at)
      : file_system_(file_system),
        generation_(generation),
        path_(std::move(path)),
        content_(std::move(content)),
        at_(at) {}

  absl::Status Append(absl::Span<const struct iovec> pieces) override {
    return file_system_->Append(generation_, path_, content_.get(), &at_, pieces);
  }
  absl::Status Sync() override { return file_system_->Sync(generation_, path_, content_.get()); }
  absl::Status Truncate(uint64_t size) override {
    at_ = size;
    return file_system_->Truncate(generation_, path_, content_.get(), size);
  }
  uint64_t size() const override { return at_; }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  FaultFileSystem* file_system_;
  uint64_t generation_;
  std::string path_;
  std::shared_ptr<Content> content_;
  uint64_t at_;  // where the next append begins
};

class FaultFileSystem::LockFile : public WritableFile {
 public:
  LockFile(FaultFileSystem* file_system, uint64_t generation, std::string path)
      : file_system_(file_system), generation_(generation), path_(std::move(path)) {}
  ~LockFile() override { file_system_->Unlock(generation_, path_); }

  absl::Status Append(absl::Span<const struct iovec>) override { return NotAFile(); }
  absl::Status Sync() override { return NotAFile(); }
  absl::Status Truncate(uint64_t) override { return NotAFile(); }
  uint64_t size() const override { return 0; }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  absl::Status NotAFile() const {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is a lock, not a file to write"));
  }

  FaultFileSystem* file_system_;
  uint64_t generation_;
  std::string path_;
};

class FaultFileSystem::Shared : public SharedFile {
 public:
  Shared(FaultFileSystem* file_system, std::string path, std::shared_ptr<Content> content)
      : file_system_(file_system), path_(std::move(path)), content_(std::move(content)) {}
  char* data() override { return content_->bytes.data(); }
  absl::Status Sync() override { return file_system_->SyncShared(path_, content_.get()); }

 private:
  FaultFileSystem* file_system_;
  std::string path_;
  std::shared_ptr<Content> content_;
};

FaultFileSystem::FaultFileSystem(uint64_t seed) : random_(seed), dirs_({"/"}) {}
FaultFileSystem::~FaultFileSystem() = default;

void FaultFileSystem::Crash() {
  absl::MutexLock lock(&mutex_);
  ++generation_;
  steps_left_ = -1;
  locks_.clear();
  UndoRenames();
  for (auto& [path, content] : files_) {
    // A copy: handles of before the crash must not see the file of after it.
    auto left = std::make_shared<Content>(*content);
    std::string& bytes = left->bytes;
    if (left->shared.has_value()) {
      if (random_.OneIn(2)) bytes = *left->shared;
      left->shared = bytes;
      left->synced = bytes.size();
      content = std::move(left);
      continue;
    }
    LoseOverwritten(left.get());
    const uint64_t unsynced = bytes.size() - left->synced;
    bytes.resize(left->synced + random_.Uniform(unsynced + 1));
    if (bytes.size() > left->synced && random_.OneIn(4)) {
      const uint64_t at = left->synced + random_.Uniform(bytes.size() - left->synced);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 + random_.Uniform(255)));
    }
    left->synced = bytes.size();
    left->dropped = false;
    content = std::move(left);
  }
}

// A disk writes the blocks of a file in any order.
void FaultFileSystem::LoseOverwritten(Content* content) {
  if (!content->before.has_value()) return;
  const std::string before = *std::exchange(content->before, std::nullopt);
  std::string& bytes = content->bytes;
  const uint64_t kept_of_8 = random_.Uniform(9);
  constexpr uint64_t kBlock = 64;
  for (uint64_t at = 0; at < std::min(before.size(), bytes.size()); at += kBlock) {
    if (random_.Uniform(8) < kept_of_8) continue;
    const uint64_t end = std::min(std::min(before.size(), bytes.size()), at + kBlock);
    bytes.replace(at, end - at, before, at, end - at);
  }
  if (before.size() > bytes.size() && random_.OneIn(2)) {  // undoes a truncation
    bytes.append(before, bytes.size());
    content->synced = bytes.size();
  }
}

void FaultFileSystem::UndoRenames() {
  for (uint64_t undone = random_.Uniform(renames_.size() + 1); undone > 0; --undone) {
    const auto [from, to] = std::move(renames_.back());
    renames_.pop_back();
    const auto moved = files_.find(to);
    if (moved == files_.end()) continue;  // deleted since, and deletions survive
    files_[from] = moved->second;
    files_.erase(to);
  }
  renames_.clear();
}

void FaultFileSystem::Kill() {
  absl::MutexLock lock(&mutex_);
  ++generation_;
  steps_left_ = -1;
  locks_.clear();
  for (auto& [path, content] : files_) content = std::make_shared<Content>(*content);
}

void FaultFileSystem::SetFreeBytes(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  free_bytes_ = bytes;
}

absl::StatusOr<uint64_t> FaultFileSystem::FreeBytes(const std::string& /*dir*/) {
  absl::MutexLock lock(&mutex_);
  return free_bytes_;
}

void FaultFileSystem::FailSyncs(int count, int after) {
  absl::MutexLock lock(&mutex_);
  failing_syncs_ = count;
  syncs_before_failing_ = after;
}

void FaultFileSystem::FailAppends(int count) {
  absl::MutexLock lock(&mutex_);
  failing_appends_ = count;
}

void FaultFileSystem::FlipBit(const std::string& path, uint64_t byte, int bit) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(path);
  HOTBED_CHECK(found != files_.end()) << path;
  HOTBED_CHECK(byte < found->second->bytes.size()) << path << " byte " << byte;
  char& target = found->second->bytes[byte];
  target = static_cast<char>(target ^ (1 << bit));
}

uint64_t FaultFileSystem::syncs() const {
  absl::MutexLock lock(&mutex_);
  return syncs_;
}

absl::Status FaultFileSystem::CheckGeneration(uint64_t generation, const std::string& path) const {
  if (generation == generation_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(path, " was opened before the crash"));
}

void FaultFileSystem::DieAfter(int operations) {
  absl::MutexLock lock(&mutex_);
  steps_left_ = operations;
}

bool FaultFileSystem::dead() const {
  absl::MutexLock lock(&mutex_);
  return steps_left_ == 0;
}

absl::Status FaultFileSystem::Step(const std::string& path) {
  if (steps_left_ > 0) --steps_left_;
  if (steps_left_ != 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the process died before it changed ", path));
}

bool FaultFileSystem::TakeFault(int* count) {
  if (*count == 0) return false;
  --*count;
  return true;
}

bool FaultFileSystem::TakeSyncFault() {
  if (failing_syncs_ > 0 && syncs_before_failing_ > 0) {
    --syncs_before_failing_;
    return false;
  }
  return TakeFault(&failing_syncs_);
}

absl::Status FaultFileSystem::Append(uint64_t generation, const std::string& path, Content* content,
                                     uint64_t* at, absl::Span<const struct iovec> pieces) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(CheckGeneration(generation, path));
  if (steps_left_ == 0) return Step(path);
  const absl::Status died = Step(path);
  std::string bytes;
  for (const iovec& piece : pieces) bytes.append(static_cast<char*>(piece.iov_base), piece.iov_len);
  const bool fails = TakeFault(&failing_appends_) || !died.ok();
  if (fails) bytes.resize(random_.Uniform(bytes.size() + 1));
  std::string& whole = content->bytes;
  const uint64_t over = std::min<uint64_t>(whole.size() - *at, bytes.size());
  const bool full = bytes.size() - over > free_bytes_;
  if (full) bytes.resize(over + free_bytes_);
  if (free_bytes_ != UINT64_MAX) free_bytes_ -= bytes.size() - over;
  if (over > 0 && !content->before.has_value()) content->before = whole.substr(0, content->synced);
  whole.replace(*at, over, bytes);
  *at += bytes.size();
  if (!died.ok()) return died;
  if (fails) return InputOutputError("append to", path);
  if (full) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot append to ", path, ": no space left"));
  }
  return absl::OkStatus();
}

absl::Status FaultFileSystem::Sync(uint64_t generation, const std::string& path, Content* content) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(CheckGeneration(generation, path));
  HOTBED_RETURN_IF_ERROR(Step(path));
  if (TakeSyncFault()) {
    content->dropped = true;
    return InputOutputError("sync", path);
  }
  if (!content->dropped) {
    content->synced = content->bytes.size();
    content->before.reset();
  }
  ++syncs_;
  return absl::OkStatus();
}

absl::Status FaultFileSystem::Truncate(uint64_t generation, const std::string& path,
                                       Content* content, uint64_t size) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(CheckGeneration(generation, path));
  HOTBED_RETURN_IF_ERROR(Step(path));
  const uint64_t before = content->bytes.size();
  if (size < before && free_bytes_ != UINT64_MAX) free_bytes_ += before - size;
  if (size < content->synced && !content->before.has_value())
    content->before = content->bytes.substr(0, content->synced);
  content->bytes.resize(size);
  content->synced = std::min(content->synced, size);
  if (content->synced == size) content->dropped = false;
  return absl::OkStatus();
}

void FaultFileSystem::Unlock(uint64_t generation, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  if (generation == generation_) locks_.erase(path);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultFileSystem::OpenAppend(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(path));
  if (dirs_.count(ParentOf(path)) == 0) return Missing("create", path);
  std::shared_ptr<Content>& content = files_[path];
  if (content == nullptr) content = std::make_shared<Content>();
  return std::make_unique<File>(this, generation_, path, content, content->bytes.size());
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultFileSystem::OpenAt(const std::string& path,
                                                                      uint64_t offset) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return Missing("open", path);
  HOTBED_CHECK(offset <= found->second->bytes.size()) << path << " at " << offset;
  return std::make_unique<File>(this, generation_, path, found->second, offset);
}

absl::StatusOr<std::unique_ptr<SharedFile>> FaultFileSystem::OpenShared(const std::string& path,
                                                                        uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (dirs_.count(ParentOf(path)) == 0) return Missing("create", path);
  std::shared_ptr<Content>& content = files_[path];
  if (content == nullptr) content = std::make_shared<Content>();
  if (content->bytes.size() != bytes && bytes > free_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", path, ": no space left"));
  }
  content->bytes.resize(bytes);
  if (!content->shared.has_value()) content->shared = content->bytes;
  return std::make_unique<Shared>(this, path, content);
}

absl::Status FaultFileSystem::SyncShared(const std::string& path, Content* content) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(path));
  if (TakeSyncFault()) return InputOutputError("sync", path);
  content->shared = content->bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::string> FaultFileSystem::ReadAll(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return Missing("read", path);
  return found->second->bytes;
}

absl::StatusOr<uint64_t> FaultFileSystem::ReadAt(const std::string& path, uint64_t offset,
                                                 uint64_t bytes, char* out) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return Missing("read", path);
  const std::string& content = found->second->bytes;
  if (offset >= content.size()) return 0;
  return content.copy(out, bytes, offset);
}

absl::Status FaultFileSystem::WriteAtomically(const std::string& path, absl::string_view content) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(path));
  if (dirs_.count(ParentOf(path)) == 0) return Missing("create", path);
  if (TakeSyncFault()) return InputOutputError("sync", path);
  if (content.size() > free_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", path, ": no space left"));
  }
  const auto found = files_.find(path);
  if (free_bytes_ != UINT64_MAX) {
    free_bytes_ -= content.size();
    if (found != files_.end()) free_bytes_ += found->second->bytes.size();
  }
  auto replaced = std::make_shared<Content>();
  replaced->bytes = std::string(content);
  replaced->synced = content.size();
  files_[path] = std::move(replaced);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultFileSystem::List(const std::string& dir) {
  absl::MutexLock lock(&mutex_);
  if (dirs_.count(dir) == 0) return Missing("list", dir);
  const std::string prefix = dir == "/" ? "/" : dir + "/";
  std::set<std::string> names;
  const auto add = [&](const std::string& path) {
    if (!absl::StartsWith(path, prefix) || path == prefix) return;
    const std::string name = path.substr(prefix.size());
    if (name.find('/') == std::string::npos) names.insert(name);
  };
  for (const auto& [path, content] : files_) add(path);
  for (const std::string& path : dirs_) add(path);
  for (const std::string& path : locks_) add(path);
  return std::vector<std::string>(names.begin(), names.end());
}

absl::Status FaultFileSystem::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(from));
  const auto found = files_.find(from);
  if (found == files_.end()) return Missing("rename", from);
  files_[to] = found->second;
  files_.erase(found);
  renames_.emplace_back(from, to);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FaultFileSystem::FileSize(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  const auto found = files_.find(path);
  if (found == files_.end()) return Missing("stat", path);
  return found->second->bytes.size();
}

absl::Status FaultFileSystem::Delete(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(path));
  const auto found = files_.find(path);
  if (found == files_.end()) {
    const auto inside = files_.lower_bound(path + "/");
    const bool empty = inside == files_.end() || !absl::StartsWith(inside->first, path + "/");
    return empty && dirs_.erase(path) > 0 ? absl::OkStatus() : Missing("delete", path);
  }
  if (free_bytes_ != UINT64_MAX) free_bytes_ += found->second->bytes.size();
  files_.erase(found);
  return absl::OkStatus();
}

absl::Status FaultFileSystem::MakeDir(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  for (std::string dir = path; dir != "/"; dir = ParentOf(dir)) dirs_.insert(dir);
  return absl::OkStatus();
}

absl::Status FaultFileSystem::SyncDir(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  HOTBED_RETURN_IF_ERROR(Step(path));
  if (dirs_.count(path) == 0) return Missing("sync", path);
  if (TakeSyncFault()) return InputOutputError("sync", path);
  renames_.clear();
  return absl::OkStatus();
}

bool FaultFileSystem::Exists(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  return files_.count(path) > 0 || dirs_.count(path) > 0 || locks_.count(path) > 0;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultFileSystem::Lock(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  if (!locks_.insert(path).second) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is locked"));
  }
  return std::make_unique<LockFile>(this, generation_, path);
}

}  // namespace hotbed
