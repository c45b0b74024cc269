// The two quantities that TorchRec's planner weighs: storage by tier in bytes, and time by phase in
// milliseconds per step. Plain values; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_ESTIMATE_H_
#define HOTBED_PLANNER_TORCHREC_ESTIMATE_H_

#include <cmath>
#include <cstdint>

#include "absl/numeric/int128.h"
#include "planner/model/planner_output.h"

namespace hotbed::torchrec {

// Signed, because a reservation may leave less than nothing; wide, because tables may have 2^63
// elements.
struct Storage {
  absl::int128 hbm = 0;  // bytes of the device
  absl::int128 ddr = 0;  // bytes of the host

  Storage& operator+=(const Storage& other) {
    hbm += other.hbm;
    ddr += other.ddr;
    return *this;
  }
  Storage& operator-=(const Storage& other) {
    hbm -= other.hbm;
    ddr -= other.ddr;
    return *this;
  }
  bool FitsIn(const Storage& other) const { return hbm <= other.hbm && ddr <= other.ddr; }
  friend bool operator==(const Storage&, const Storage&) = default;
  // Lexicographic, the device first: TorchRec sorts by it.
  friend bool operator<(const Storage& a, const Storage& b) {
    return a.hbm != b.hbm ? a.hbm < b.hbm : a.ddr < b.ddr;
  }
};

// Nearest uint64, as plans and errors show bytes.
inline uint64_t ClampBytes(absl::int128 bytes) {
  constexpr uint64_t kMax = ~uint64_t{0};
  if (bytes < 0) return 0;
  return bytes > absl::int128(kMax) ? kMax : static_cast<uint64_t>(bytes);
}

// Bytes rounded up. Sizes beyond 2^100 are treated alike: they fit nowhere.
inline absl::int128 CeilingBytes(double bytes) {
  constexpr double kMost = 0x1p100;
  return static_cast<absl::int128>(std::ceil(bytes < kMost ? bytes : kMost));
}

// In TorchRec's order of additions, so that ties stay ties.
inline double TotalMs(const TablePerf& perf) {
  return perf.forward_compute_ms + perf.backward_compute_ms + perf.forward_comms_ms +
         perf.backward_comms_ms + perf.prefetch_ms;
}

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_ESTIMATE_H_
