// One thing that `hotbed doctor` looks at.
#ifndef HOTBED_CLI_DOCTOR_CHECK_H_
#define HOTBED_CLI_DOCTOR_CHECK_H_

#include <cstdint>
#include <string>

namespace hotbed {

enum class Verdict { kOk, kWarning, kFailed };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string found;  // and, where it is not well, what to do
};

// How long ago something may have been to be worth a warning.
inline constexpr int64_t kRecentSeconds = 600;

}  // namespace hotbed

#endif  // HOTBED_CLI_DOCTOR_CHECK_H_
