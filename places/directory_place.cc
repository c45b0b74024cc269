#include "places/directory_place.h"

#include <sys/uio.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

class DirectoryWriter : public PlaceWriter {
 public:
  DirectoryWriter(std::string folder, std::unique_ptr<WritableFile> file, FileSystem* files)
      : folder_(std::move(folder)), file_(std::move(file)), files_(*files) {}

  absl::Status Append(absl::Span<const absl::string_view> pieces) override {
    std::vector<iovec> parts;
    for (const absl::string_view piece : pieces) {
      if (!piece.empty()) parts.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    return file_->Append(parts);
  }
  absl::Status Finish() override {
    HOTBED_RETURN_IF_ERROR(file_->Sync());
    HOTBED_RETURN_IF_ERROR(file_->Close());
    return files_.SyncDir(folder_);
  }

 private:
  const std::string folder_;
  const std::unique_ptr<WritableFile> file_;
  FileSystem& files_;
};

class DirectoryReader : public PlaceReader {
 public:
  DirectoryReader(std::string path, uint64_t size, FileSystem* files)
      : path_(std::move(path)), size_(size), files_(*files) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<uint64_t> ReadAt(uint64_t offset, uint64_t bytes, char* out) override {
    return files_.ReadAt(path_, offset, bytes, out);
  }

 private:
  const std::string path_;
  const uint64_t size_;
  FileSystem& files_;
};

}  // namespace

absl::StatusOr<std::vector<Place::Entry>> DirectoryPlace::List(const std::string& folder) {
  HOTBED_ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(folder));
  std::vector<Entry> entries;
  for (std::string& name : names) {
    const uint64_t bytes = files_.FileSize(absl::StrCat(folder, "/", name)).value_or(0);
    entries.push_back({std::move(name), bytes});
  }
  return entries;
}

absl::StatusOr<bool> DirectoryPlace::Has(const std::string& path) { return files_.Exists(path); }

absl::StatusOr<std::string> DirectoryPlace::ReadAll(const std::string& path) {
  return files_.ReadAll(path);
}

absl::StatusOr<std::unique_ptr<PlaceReader>> DirectoryPlace::Open(const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const uint64_t size, files_.FileSize(path));
  return std::make_unique<DirectoryReader>(path, size, &files_);
}

absl::StatusOr<std::unique_ptr<PlaceWriter>> DirectoryPlace::Create(const std::string& path) {
  if (files_.Exists(path)) return absl::AlreadyExistsError(absl::StrCat(path, " exists already"));
  HOTBED_ASSIGN_OR_RETURN(auto file, files_.OpenAppend(path));
  return std::make_unique<DirectoryWriter>(ParentOf(path), std::move(file), &files_);
}

absl::Status DirectoryPlace::Put(const std::string& path, absl::string_view content) {
  return files_.WriteAtomically(path, content);
}

absl::Status DirectoryPlace::Delete(const std::string& folder,
                                    const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    HOTBED_RETURN_IF_ERROR(files_.Delete(absl::StrCat(folder, "/", file)));
  }
  return files_.SyncDir(folder);
}

absl::Status DirectoryPlace::MakeFolder(const std::string& folder) {
  if (files_.Exists(folder)) {
    return absl::AlreadyExistsError(absl::StrCat(folder, " exists already"));
  }
  HOTBED_RETURN_IF_ERROR(files_.MakeDir(folder));
  return files_.SyncDir(ParentOf(folder));
}

absl::Status DirectoryPlace::DeleteFolder(const std::string& folder) {
  return files_.Delete(folder);
}

absl::StatusOr<uint64_t> DirectoryPlace::EndUnfinished(const std::string& folder,
                                                       int64_t before_unix_ms) {
  return 0;  // List shows them
}

}  // namespace hotbed
