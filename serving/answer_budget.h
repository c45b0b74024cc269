// The bytes of answers that this serving server makes and sends at a time. Thread-safe.
#ifndef HOTBED_SERVING_ANSWER_BUDGET_H_
#define HOTBED_SERVING_ANSWER_BUDGET_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hotbed {

class AnswerBudget {
 public:
  explicit AnswerBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // ResourceExhausted: others have too much, and nothing is taken. An answer alone always fits.
  absl::Status Take(uint64_t bytes) {
    const uint64_t before = in_flight_.fetch_add(bytes);
    if (before == 0 || before + bytes <= bytes_max_) return absl::OkStatus();
    Give(bytes);
    return absl::ResourceExhaustedError(absl::StrCat("answers in flight on this server hold ",
                                                     before, " of ", bytes_max_,
                                                     " bytes: ask another one, or again later"));
  }
  // For an answer that has become larger than was taken for it.
  void Charge(uint64_t bytes) { in_flight_.fetch_add(bytes); }
  void Give(uint64_t bytes) { in_flight_.fetch_sub(bytes); }
  uint64_t in_flight() const { return in_flight_.load(); }

 private:
  const uint64_t bytes_max_;
  std::atomic<uint64_t> in_flight_{0};
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ANSWER_BUDGET_H_
