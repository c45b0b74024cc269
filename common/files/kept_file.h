// A small file that is written whole, and that an older version, or one from a copy of its folder,
// never passes for. Behind its content stand 24 bytes, little-endian: generation u64, which grows
// with each write, run u64, the random id of the process that wrote it, CRC-32C u32 of the content,
// CRC-32C u32 of those 20 bytes. A mark (marks.h) holds generation and checksum of the last write.
//
// The content has a checksum of its own. Thread-compatible.
#ifndef HOTBED_COMMON_FILES_KEPT_FILE_H_
#define HOTBED_COMMON_FILES_KEPT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/file_system.h"
#include "common/files/marks.h"

namespace hotbed {

class KeptFile {
 public:
  // The state that a file is compared with. The id of the run before: a write after which a kill
  // came before its mark is told by it.
  struct Proof {
    // Null, or a mark that was never set: nothing is known, and any whole file is good.
    Marks* marks = nullptr;
    Marks::Field field = Marks::kCatalog;
    uint64_t run = 0;
    uint64_t run_before = 0;
  };
  KeptFile(std::string path, FileSystem* files, const Proof& proof)
      : path_(std::move(path)), files_(files), proof_(proof) {}

  // Without its last 24 bytes. NotFound: there is none. DataLoss: it is cut short, or not the one
  // that was written last.
  absl::StatusOr<std::string> Read();
  // Atomic and durable.
  absl::Status Write(absl::string_view content);

  const std::string& path() const { return path_; }
  FileSystem* files() const { return files_; }

 private:
  const std::string path_;
  FileSystem* const files_;
  const Proof proof_;
  uint64_t generation_ = 0;  // of the last Read or Write
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_KEPT_FILE_H_
