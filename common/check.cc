#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace hotbed::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << "] check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  const std::string text = stream_.str();
  std::fprintf(stderr, "F %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace hotbed::internal
