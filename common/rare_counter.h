// A counter of what is rare and worth a look. It also exposes when it last grew, so that a reader
// can tell what happens now from what happened long ago. Thread-safe.
#ifndef HOTBED_COMMON_RARE_COUNTER_H_
#define HOTBED_COMMON_RARE_COUNTER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/metrics.h"

namespace hotbed {

// A gauge of this suffix in place of "_total" is the Unix time of the last Add; it is absent before
// the first.
inline constexpr char kLastTimeSuffix[] = "_last_timestamp_seconds";

class RareCounter {
 public:
  // `name` ends in "_total".
  RareCounter(const std::string& name, const std::string& help, const Labels& labels = {})
      : count_(name, help, labels),
        last_([this, name = absl::StrCat(absl::StripSuffix(name, "_total"), kLastTimeSuffix),
               help = absl::StrCat("When the last one was. ", help),
               labels](std::vector<MetricSample>* samples) {
          const int64_t us = last_us_.load(std::memory_order_relaxed);
          if (us != 0) AddSample(name, help, labels, static_cast<double>(us) * 1e-6, samples);
        }) {}

  void Add(uint64_t n) {
    last_us_.store(Clock::Real()->WallUs(), std::memory_order_relaxed);
    count_.Add(n);
  }

 private:
  Counter count_;
  std::atomic<int64_t> last_us_{0};
  MetricSource last_;  // last: it reads the others
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_RARE_COUNTER_H_
