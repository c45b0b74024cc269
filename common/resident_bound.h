// Keeps the resident size of a process near its budget.
//
// Each part of a budget (server/host/host_budget.h) is bounded by itself, but memory that a part
// frees stays with malloc, in one arena or another. When the process is larger than its budget,
// free memory is returned to the system. Thread-compatible.
#ifndef HOTBED_COMMON_RESIDENT_BOUND_H_
#define HOTBED_COMMON_RESIDENT_BOUND_H_

#include <cstdint>
#include <functional>

namespace hotbed {

class ResidentBound {
 public:
  struct Seams {
    std::function<uint64_t()> resident_bytes;  // of this process; 0: unknown
    std::function<void()> give_back;           // returns free memory to the system
  };
  // Those of the operating system.
  static Seams Real();

  ResidentBound(uint64_t bytes_max, Seams seams);

  // Call about once per second. Returned memory costs page faults later, so after a return that
  // helped little the next checks are skipped, twice as many each time, up to kSkippedMax.
  void Check();

  static constexpr int kSkippedMax = 32;

 private:
  const uint64_t limit_;
  const Seams seams_;
  int skip_ = 0;
  int skip_next_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_RESIDENT_BOUND_H_
