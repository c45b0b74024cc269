// A directory as a place for checkpoints. Every process that uses it reaches it under one path.
#ifndef HOTBED_PLACES_DIRECTORY_PLACE_H_
#define HOTBED_PLACES_DIRECTORY_PLACE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/files/file_system.h"
#include "places/place.h"

namespace hotbed {

class DirectoryPlace : public Place {
 public:
  explicit DirectoryPlace(FileSystem* files) : files_(*files) {}

  absl::StatusOr<std::vector<Entry>> List(const std::string& folder) override;
  absl::StatusOr<bool> Has(const std::string& path) override;
  absl::StatusOr<std::string> ReadAll(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceReader>> Open(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<PlaceWriter>> Create(const std::string& path) override;
  absl::Status Put(const std::string& path, absl::string_view content) override;
  absl::Status Delete(const std::string& folder, const std::vector<std::string>& files) override;
  absl::Status MakeFolder(const std::string& folder) override;
  absl::Status DeleteFolder(const std::string& folder) override;
  absl::StatusOr<uint64_t> EndUnfinished(const std::string& folder,
                                         int64_t before_unix_ms) override;

 private:
  FileSystem& files_;
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_DIRECTORY_PLACE_H_
