// Tests that run on any device: the emulated one under GoogleTest, a GPU from gpu_test.cc. C++17
// and nothing but the standard library, so that they can be taken to any machine.
#ifndef HOTBED_TESTS_DEVICE_CASE_H_
#define HOTBED_TESTS_DEVICE_CASE_H_

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/device_rows.h"
#include "row_math/position.h"

namespace hotbed {
namespace device {

// A pull, probe or update that is finished at once, in the first room.
inline Status PullNow(DeviceRows* rows, const Batch& batch, uint8_t* out, uint8_t* flags,
                      std::vector<uint32_t>* missing) {
  const Status started = rows->StartPull(0, batch, out, flags);
  return started.ok() ? rows->Finish(0, missing) : started;
}
inline Status ProbeNow(DeviceRows* rows, const Batch& batch, std::vector<uint32_t>* missing) {
  const Status started = rows->StartProbe(0, batch);
  return started.ok() ? rows->Finish(0, missing) : started;
}
inline Status UpdateNow(DeviceRows* rows, const Batch& batch, const uint8_t* gradients,
                        std::vector<uint32_t>* elsewhere) {
  const Status started = rows->StartUpdate(0, batch, gradients);
  return started.ok() ? rows->Finish(0, elsewhere) : started;
}

// splitmix64: the next number is a mix of a counter.
class CaseRandom {
 public:
  explicit CaseRandom(uint64_t seed) : state_(Mix64(seed)) {}
  uint64_t Next() { return Mix64(state_++); }
  uint32_t Below(uint64_t limit) { return static_cast<uint32_t>(Next() % limit); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  // In (-scale, scale), with many different exponents.
  float Float(float scale) {
    const float unit =
        static_cast<float>(static_cast<int32_t>(Next() >> 40) - (1 << 23)) / (1 << 23);
    return OneIn(4) ? unit * scale * 1e-3f : unit * scale;
  }
  template <typename T>
  T Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

 private:
  uint64_t state_;
};

// What a case found; the first few findings are kept.
class Findings {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    if (++count_ > 5) return;
    std::ostringstream text;
    (text << ... << parts);
    text_ += text.str() + "\n";
  }
  template <typename... Parts>
  bool Check(bool holds, const Parts&... parts) {
    if (!holds) Add(parts...);
    return holds;
  }
  bool Ok(const Status& status) { return Check(status.ok(), "status: ", status.message); }
  uint64_t count() const { return count_; }
  const std::string& text() const { return text_; }

 private:
  uint64_t count_ = 0;
  std::string text_;
};

struct Case {
  const char* name;
  void (*run)(Device* device, uint64_t seed, Findings* findings);
};

// In the order in which they are best run.
std::vector<Case> AllCases();

// Parts of it.
std::vector<Case> StepCases();
std::vector<Case> ReadCases();
std::vector<Case> TierCases();
std::vector<Case> FlightCases();

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_CASE_H_
