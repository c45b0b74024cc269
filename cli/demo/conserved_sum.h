// Proves that no acknowledged push was lost and none was applied twice. A thread pushes integer
// gradients into a table of its own (SGD, learning rate 1, first values 0), so at the end every
// weight must be exactly minus the sum of the acknowledged gradients. After each push its rows are
// pulled and must already contain it. Thread-compatible: one thread calls Start, TakePhase and
// StopAndCheck.
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
  // Calls of the client between two calls of TakePhase.
  struct Phase {
    uint64_t pushes = 0;  // acknowledged
    uint64_t pulls = 0;   // answered correctly
    uint64_t errors = 0;  // calls with any other result
    double longest_push_seconds = 0;
    double longest_pull_seconds = 0;
  };
  struct Report {
    uint64_t pushes = 0;  // acknowledged
    uint64_t rows = 0;    // in them, with duplicates
    uint64_t weights_checked = 0;
    uint64_t retries = 0;  // messages that the client sent again
    double longest_push_seconds = 0;
  };

  // Creates the table, replicated if `replicas` is 2, and begins to push. `seed` determines ids and
  // gradients.
  static absl::StatusOr<std::unique_ptr<ConservedSum>> Start(const std::string& target,
                                                             const std::string& table,
                                                             uint32_t replicas, uint64_t seed,
                                                             const Clock* clock);
  ~ConservedSum();  // stops

  uint64_t pushes() const { return pushes_.load(); }

  // The counts since the last call, or since the start.
  Phase TakePhase();

  // Ends the pushes, reads every row back and compares. DataLoss names the first wrong weight.
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
  std::atomic<bool> stop_{false};     // ends after the push in progress
  std::atomic<bool> abandon_{false};  // ends even if the outcome of a push is unknown
  std::atomic<uint64_t> pushes_{0};
  absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_);
  // Used by the pushing thread until it has ended.
  absl::Status status_;
  std::vector<int32_t> sums_;  // rows x dim
  uint64_t rows_ = 0;
  int64_t longest_ns_ = 0;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CONSERVED_SUM_H_
