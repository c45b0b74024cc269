// The results of a benchmark of the device, printed row by row as text or as one JSON object.
#ifndef HOTBED_BENCH_DEVICE_BENCH_REPORT_H_
#define HOTBED_BENCH_DEVICE_BENCH_REPORT_H_

#include <string>

#include "bench/device/bench_rows.h"

namespace hotbed {
namespace device {

enum class Bar { kNone, kAtLeast, kAtMost };

struct Result {
  std::string name;
  double value = 0;
  std::string unit;  // "of the roof", "ms", "times", ...
  Bar bar = Bar::kNone;
  double limit = 0;
  Timing timing = {0, 0};  // of a call; 0 where the row has none
  double bytes = 0;        // that a call must read and write; 0: not counted
  std::string detail;

  bool reached() const { return bar == Bar::kAtLeast ? value >= limit : value <= limit; }
};

class Report {
 public:
  // `title`: the device and how it was measured.
  Report(bool json, const std::string& title);
  void Add(const Result& result);
  // Prints the end of the JSON, or how many bars were reached.
  void End() const;

 private:
  const bool json_;
  int results_ = 0;
  int bars_ = 0;
  int reached_ = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_BENCH_DEVICE_BENCH_REPORT_H_
