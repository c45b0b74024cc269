#ifndef HOTBED_TESTS_SHARD_SMALL_DISK_H_
#define HOTBED_TESTS_SHARD_SMALL_DISK_H_

#include <sys/mount.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace hotbed {

// A small disk of the rows' own, which can be filled. Not every machine lets a test mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& dir) : dir_(dir), ballast_(dir + "/ballast") {
    std::filesystem::create_directories(dir);
    mounted_ = mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=32m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(dir_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  // Until `free_bytes` are left.
  void Fill(uint64_t free_bytes) {
    const uint64_t free = std::filesystem::space(dir_).available;
    std::ofstream(ballast_) << std::string(free - free_bytes, 'b');
  }
  void Free() { std::filesystem::remove(ballast_); }

 private:
  const std::string dir_;
  const std::string ballast_;
  bool mounted_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SHARD_SMALL_DISK_H_
