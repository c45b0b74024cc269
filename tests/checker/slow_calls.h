// What one client's slow calls waited for, in a file that other programs read
// (tests/fault/stalls.py): one JSON object a line. Times are Clock::NowNs.
//   {"call":"push","step":7,"sent_ns":S,"now_ns":T,"shards":["check_r2/3"],"last":"..."}  still
//   waits
//   {"call":"push","step":7,"sent_ns":S,"now_ns":T}                                     is answered
//   {"call":"pull","sent_ns":S,"now_ns":T}                                              likewise
// A process that is killed leaves its last line behind, perhaps torn. Thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_SLOW_CALLS_H_
#define HOTBED_TESTS_CHECKER_SLOW_CALLS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hotbed/client.h"

namespace hotbed::checker {

class SlowCalls {
 public:
  // Appends to the file. A call is slow when it takes longer than `after`; zero: none is.
  static absl::StatusOr<std::unique_ptr<SlowCalls>> Open(const std::string& path,
                                                         absl::Duration after);
  ~SlowCalls();
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  bool Slow(int64_t sent_ns, int64_t now_ns) const {
    return after_ns_ > 0 && now_ns - sent_ns > after_ns_;
  }
  // Those of `unanswered` that are of `step`.
  void PushWaits(uint64_t step, int64_t sent_ns, int64_t now_ns,
                 const std::vector<PushResult>& unanswered);
  void PushAnswered(uint64_t step, int64_t sent_ns, int64_t now_ns);
  void PullAnswered(int64_t sent_ns, int64_t now_ns);

 private:
  SlowCalls(std::FILE* file, absl::Duration after)
      : file_(file), after_ns_(absl::ToInt64Nanoseconds(after)) {}
  void Write(const std::string& line);

  std::FILE* const file_;
  const int64_t after_ns_;
};

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_SLOW_CALLS_H_
