#include "server/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hotbed {
namespace {

// The number that the file begins with; 0: none, as in "max".
uint64_t NumberIn(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  uint64_t number = 0;
  return in >> word && absl::SimpleAtoi(word, &number) ? number : 0;
}

uint64_t PhysicalBytes(const std::string& root) {
  std::ifstream in(absl::StrCat(root, "/proc/meminfo"));
  std::string name;
  uint64_t kib = 0;
  return in >> name >> kib && name == "MemTotal:" ? kib * 1024 : 0;
}

}  // namespace

uint64_t MachineMemoryBytes(const std::string& root) {
  std::vector<uint64_t> limits = {PhysicalBytes(root)};
  const std::string groups = absl::StrCat(root, "/sys/fs/cgroup");
  // In a container the own group is usually mounted as the root of the tree.
  limits.push_back(NumberIn(absl::StrCat(groups, "/memory.max")));
  limits.push_back(NumberIn(absl::StrCat(groups, "/memory/memory.limit_in_bytes")));
  std::ifstream own(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(own, line);) {  // "0::/a/b", or "5:memory:/a/b"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) {
      limits.push_back(NumberIn(absl::StrCat(groups, parts[2], "/memory.max")));
    } else if (parts[1] == "memory") {
      limits.push_back(
          NumberIn(absl::StrCat(groups, "/memory", parts[2], "/memory.limit_in_bytes")));
    }
  }
  uint64_t least = 0;
  for (const uint64_t limit : limits) {
    if (limit != 0) least = least == 0 ? limit : std::min(least, limit);
  }
  return least;
}

}  // namespace hotbed
