// Where the files of checkpoints lie, as a seam: a directory (directory_place.h) or an object store
// (s3_place.h). A path is absolute, or s3://BUCKET/KEY; what it names is a file or a folder of
// files. Nothing is renamed: a file is whole when Put or Finish has returned.
//
// Thread-safe; a reader or writer is thread-compatible. Calls block. NotFound is said only of what
// is not there; a store that cannot be asked is another error.
#ifndef HOTBED_PLACES_PLACE_H_
#define HOTBED_PLACES_PLACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hotbed {

// A writer that is destroyed before Finish takes its file back, or leaves one that is not whole.
class PlaceWriter {
 public:
  virtual ~PlaceWriter() = default;
  virtual absl::Status Append(absl::Span<const absl::string_view> pieces) = 0;
  virtual absl::Status Finish() = 0;  // durable after OK
};

class PlaceReader {
 public:
  virtual ~PlaceReader() = default;
  virtual uint64_t size() const = 0;
  // Returns the number of bytes read, which is less at the end of the file.
  virtual absl::StatusOr<uint64_t> ReadAt(uint64_t offset, uint64_t bytes, char* out) = 0;
};

class Place {
 public:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;  // of a file
  };

  virtual ~Place() = default;
  // Files and folders in a folder, by name. NotFound: it is not there; FailedPrecondition: it is no
  // folder.
  virtual absl::StatusOr<std::vector<Entry>> List(const std::string& folder) = 0;
  virtual absl::StatusOr<std::string> ReadAll(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<PlaceReader>> Open(const std::string& path) = 0;
  // A new file, in a folder that is there. A directory says AlreadyExists.
  virtual absl::StatusOr<std::unique_ptr<PlaceWriter>> Create(const std::string& path) = 0;
  // All of a small file at once: after an error there is the old file, or none.
  virtual absl::Status Put(const std::string& path, absl::string_view content) = 0;
  virtual absl::Status Delete(const std::string& folder, const std::vector<std::string>& files) = 0;
  // With the folders above it. AlreadyExists: it is there.
  virtual absl::Status MakeFolder(const std::string& folder) = 0;
  virtual absl::Status DeleteFolder(const std::string& folder) = 0;  // an empty one
  // Takes back the files of saves, N-N-N.rows, in `folder` and in the folders in it, that were
  // begun before then and are not whole, where List does not show such files. Their writers fail.
  // Likewise files in folders of the folder that have nothing else, where a folder is no more than
  // a name: they were written when it had been deleted. Returns their number.
  virtual absl::StatusOr<uint64_t> EndUnfinished(const std::string& folder,
                                                 int64_t before_unix_ms) = 0;

  // Memory that a writer or a reader takes at most.
  virtual uint64_t writer_bytes() const { return 0; }
  virtual uint64_t reader_bytes() const { return 0; }

  // Whether the file is there.
  virtual absl::StatusOr<bool> Has(const std::string& path) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PLACES_PLACE_H_
