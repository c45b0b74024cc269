#include "client/map/usual_time.h"

#include <algorithm>
#include <bit>

namespace hotbed {

int UsualTime::BucketOf(int64_t ns) {
  const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(ns, 4));
  const int power = std::bit_width(n) - 1;
  const int quarter = static_cast<int>(n >> (power - 2) & 3);
  return std::min(power * 4 + quarter, kBuckets - 1);
}

int64_t UsualTime::LimitOf(int bucket) { return int64_t{5 + bucket % 4} << (bucket / 4 - 2); }

void UsualTime::Add(int64_t took_ns) {
  ++counts_[BucketOf(took_ns)];
  ++total_;
}

void UsualTime::Age() {
  total_ = 0;
  for (uint32_t& count : counts_) {
    count /= 2;
    total_ += count;
  }
}

int64_t UsualTime::Quantile(double q) const {
  if (total_ < kTimesMin) return 0;
  const auto rank = static_cast<uint64_t>(q * static_cast<double>(total_));
  uint64_t below = 0;
  int bucket = 0;
  while (bucket + 1 < kBuckets && below + counts_[bucket] <= rank) below += counts_[bucket++];
  return LimitOf(bucket);
}

}  // namespace hotbed
