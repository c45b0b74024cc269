// Writes the slow calls of one client, and the shards that they wait for, to a file that other
// programs read (tests/fault/stalls.py): one JSON object per line. Times are Clock::NowNs.
//   {"call":"push","step":7,"now_ns":T,"shards":["check_r2/3"],"last":"..."}  still waits
//   {"call":"push","step":7,"sent_ns":S,"now_ns":T}                          is answered
//   {"call":"pull","sent_ns":S,"now_ns":T}                                   likewise
// A process that is killed leaves its last line behind, perhaps torn. Thread-safe.
#ifndef HOTBED_TESTS_CHECKER_SLOW_CALLS_H_
#define HOTBED_TESTS_CHECKER_SLOW_CALLS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hotbed/client.h"

namespace hotbed::checker {

class SlowCalls {
 public:
  // Appends to the file. A call is slow when it takes longer than `after`; zero: no call is. After
  // a fifth of that time, a thread writes once per second which shards the client's pushes wait
  // for. `client` outlives this.
  static absl::StatusOr<std::unique_ptr<SlowCalls>> Open(const std::string& path,
                                                         absl::Duration after,
                                                         const Client* client);
  ~SlowCalls();
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // Write the call if it was slow.
  void PushAnswered(uint64_t step, int64_t sent_ns, int64_t now_ns);
  void PullAnswered(int64_t sent_ns, int64_t now_ns);

 private:
  SlowCalls(std::FILE* file, absl::Duration after, const Client* client)
      : file_(file), after_(after), client_(client) {}
  void Watch();
  void PushWaits(const PushResult& push, int64_t now_ns);
  bool Slow(int64_t sent_ns, int64_t now_ns) const;
  void Write(const std::string& line) ABSL_LOCKS_EXCLUDED(mu_);

  std::FILE* const file_;
  const absl::Duration after_;
  const Client* const client_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;
};

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_SLOW_CALLS_H_
