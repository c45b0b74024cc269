#include "common/resident_bound.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hotbed {
namespace {

// Bounds of M_TRIM_THRESHOLD: the free top of an arena beyond it is returned by malloc itself.
constexpr uint64_t kTrimThresholdMin = 1ull << 20;
constexpr uint64_t kTrimThresholdMax = 64ull << 20;

uint64_t ReadResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long long all = 0;
  unsigned long long resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &all, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

ResidentBound::Seams ResidentBound::Real() {
  return {&ReadResidentBytes, [] { ::malloc_trim(/*pad=*/0); }};
}

ResidentBound::ResidentBound(uint64_t bytes_max, Seams seams)
    : limit_(bytes_max - bytes_max / 16), seams_(std::move(seams)) {
  ::mallopt(M_TRIM_THRESHOLD,
            static_cast<int>(std::clamp(bytes_max / 64, kTrimThresholdMin, kTrimThresholdMax)));
}

void ResidentBound::Check() {
  if (skip_ > 0) {
    --skip_;
    return;
  }
  const uint64_t before = seams_.resident_bytes();
  if (before <= limit_) {
    skip_next_ = 0;
    return;
  }
  seams_.give_back();
  const uint64_t after = seams_.resident_bytes();
  if (after <= limit_ || before - std::min(after, before) >= limit_ / 32) {
    skip_next_ = 0;
    return;
  }
  skip_next_ = std::min(std::max(1, 2 * skip_next_), kSkippedMax);
  skip_ = skip_next_;
}

}  // namespace hotbed
