// Keeps what malloc holds on to from adding up beyond --host-bytes.
//
// The parts that host_budget.h carves out are bounded each by itself, but the memory that they gave
// back stays with malloc, in one arena or another, for whoever asks next. When the process is
// larger than its budget, that memory goes back to the system. Thread-compatible.
#ifndef HOTBED_SERVER_RESIDENT_BOUND_H_
#define HOTBED_SERVER_RESIDENT_BOUND_H_

#include <cstdint>
#include <functional>

namespace hotbed {

class ResidentBound {
 public:
  struct Seams {
    std::function<uint64_t()> resident_bytes;  // of this process; 0: the system does not tell
    std::function<void()> give_back;           // what nobody uses
  };
  // The system's.
  static Seams Real();

  ResidentBound(uint64_t host_bytes, Seams seams);

  // Once a second or so. Giving back costs page faults later: where it helped little, the next
  // `checks` are skipped, twice as many each time, up to kSkippedMax.
  void Check();

  static constexpr int kSkippedMax = 32;

 private:
  const uint64_t limit_;
  const Seams seams_;
  int skip_ = 0;
  int skip_next_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_RESIDENT_BOUND_H_
