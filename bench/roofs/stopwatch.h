// Time as the roofs measure it: seconds on the steady clock.
#ifndef HOTBED_BENCH_ROOFS_STOPWATCH_H_
#define HOTBED_BENCH_ROOFS_STOPWATCH_H_

#include <chrono>

namespace hotbed::roofs {

inline double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double Seconds() { return Since(std::chrono::steady_clock::time_point()); }

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_STOPWATCH_H_
