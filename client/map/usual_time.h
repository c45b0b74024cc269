// The usual time of an answer: a quantile over the last few seconds. Thread-compatible, no clock.
//
// Times are counted in buckets whose limits grow by a quarter of a power of two. Age() halves every
// count, so that called once per second it forgets within a few seconds.
#ifndef HOTBED_CLIENT_MAP_USUAL_TIME_H_
#define HOTBED_CLIENT_MAP_USUAL_TIME_H_

#include <array>
#include <cstdint>

namespace hotbed {

class UsualTime {
 public:
  static constexpr uint32_t kTimesMin = 16;  // fewer say nothing

  void Add(int64_t took_ns);
  void Age();
  // The upper limit of the bucket that has the quantile `q`, in (0, 1). 0: too few times are known.
  int64_t Quantile(double q) const;

 private:
  static constexpr int kBuckets = 40 * 4;  // up to 2^40 ns, 18 minutes
  static int BucketOf(int64_t ns);
  static int64_t LimitOf(int bucket);

  std::array<uint32_t, kBuckets> counts_{};
  uint64_t total_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_USUAL_TIME_H_
