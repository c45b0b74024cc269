#include "planner/coordinator/store/meta_store.h"

#include <string>

namespace hotbed {

std::string PrefixLimit(const std::string& prefix) {
  std::string limit = prefix;
  while (!limit.empty() && static_cast<unsigned char>(limit.back()) == 0xff) limit.pop_back();
  // No key sorts after every key that begins with 0xff bytes only; this one is longer than any real
  // key of that kind.
  if (limit.empty()) return std::string(64, '\xff');
  limit.back() = static_cast<char>(static_cast<unsigned char>(limit.back()) + 1);
  return limit;
}

}  // namespace hotbed
