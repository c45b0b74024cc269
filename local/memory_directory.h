// A directory in memory for an engine without one: under /dev/shm where that has a GiB of room,
// else in the folder for temporary files. It is deleted with the object. Those that killed
// processes left behind are deleted when the next one is made.
#ifndef HOTBED_LOCAL_MEMORY_DIRECTORY_H_
#define HOTBED_LOCAL_MEMORY_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hotbed {

class MemoryDirectory {
 public:
  // Unavailable names the folder in which none can be made.
  static absl::StatusOr<std::unique_ptr<MemoryDirectory>> Make();
  ~MemoryDirectory();
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  MemoryDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // on the directory, while this process lives
};

}  // namespace hotbed

#endif  // HOTBED_LOCAL_MEMORY_DIRECTORY_H_
