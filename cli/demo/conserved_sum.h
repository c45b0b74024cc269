// The proof that nothing acknowledged is lost and nothing applied twice: a thread pushes integer
// gradients into a table of its own (SGD, learning rate 1, first values 0), so that at the end
// every weight must be exactly minus the sum of what was acknowledged. One number off by one fails
// it. After each push its rows are pulled and must hold just that already. Thread-compatible:
// Start, TakePhase and StopAndCheck by one thread.
#ifndef HOTBED_CLI_DEMO_CONSERVED_SUM_H_
#define HOTBED_CLI_DEMO_CONSERVED_SUM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

class ConservedSum {
 public:
  // What the client saw between two looks.
  struct Phase {
    uint64_t pushes = 0;  // acknowledged
    uint64_t pulls = 0;   // answered, and right
    uint64_t errors = 0;  // calls that were answered with anything else
    double longest_push_seconds = 0;
    double longest_pull_seconds = 0;
  };
  struct Report {
    uint64_t pushes = 0;  // acknowledged
    uint64_t rows = 0;    // in them, with duplicates
    uint64_t weights_checked = 0;
    uint64_t retries = 0;  // the client's own: messages sent again
    double longest_push_seconds = 0;
  };

  // Creates the table, of two copies where `copies` is 2, and begins to push. `seed` fixes ids and
  // gradients.
  static absl::StatusOr<std::unique_ptr<ConservedSum>> Start(const std::string& target,
                                                             const std::string& table,
                                                             uint32_t copies, uint64_t seed,
                                                             const Clock* clock);
  ~ConservedSum();  // stops

  uint64_t pushes() const { return pushes_.load(); }

  // Since the last call, or the start.
  Phase TakePhase();

  // Ends the pushing, reads every row back and compares. DataLoss names the first weight that is
  // wrong.
  absl::StatusOr<Report> StopAndCheck();

 private:
  ConservedSum(std::unique_ptr<Client> client, const Table* table, uint64_t seed,
               const Clock* clock);
  void PushUntilStopped();
  absl::Status PushOne(uint64_t step);
  absl::Status PullAgain(const std::vector<uint64_t>& ids);
  void Note(int64_t start_ns, uint64_t Phase::*count, double Phase::*longest);

  const std::unique_ptr<Client> client_;
  const Table* const table_;
  const uint64_t seed_;
  const Clock* const clock_;
  std::atomic<bool> stop_{false};     // after the push in progress
  std::atomic<bool> abandon_{false};  // even if its outcome is not known
  std::atomic<uint64_t> pushes_{0};
  absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_);
  // Of the pushing thread until it has ended.
  absl::Status status_;
  std::vector<int32_t> sums_;  // rows x dim
  uint64_t rows_ = 0;
  int64_t longest_ns_ = 0;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CONSERVED_SUM_H_
