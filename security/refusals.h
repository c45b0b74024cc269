// Counts and logs who was refused at one port of the process. Thread-safe.
#ifndef HOTBED_SECURITY_REFUSALS_H_
#define HOTBED_SECURITY_REFUSALS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/metrics.h"

namespace hotbed {

class Refusals {
 public:
  // `port` names the port in the log and in metrics: "data".
  explicit Refusals(const std::string& port);
  // `text`: who, what and which rule. Logged at most once per second.
  void Note(absl::string_view text);

 private:
  const std::string port_;
  Counter refused_;
};

}  // namespace hotbed

#endif  // HOTBED_SECURITY_REFUSALS_H_
