// The proof that nothing acknowledged is lost and nothing applied twice: a thread pushes integer
// gradients into a table of its own (SGD, learning rate 1, first values 0), so that at the end
// every weight must be exactly minus the sum of what was acknowledged. One number off by one fails
// it. Thread-compatible: Start, Stop and Check by one thread.
#ifndef HOTBED_CLI_DEMO_CONSERVED_SUM_H_
#define HOTBED_CLI_DEMO_CONSERVED_SUM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

class ConservedSum {
 public:
  struct Report {
    uint64_t pushes = 0;  // acknowledged
    uint64_t rows = 0;    // in them, with duplicates
    uint64_t weights_checked = 0;
    uint64_t retries = 0;  // the client's own: messages sent again
    double longest_push_seconds = 0;
  };

  // Creates the table and begins to push. `seed` fixes ids and gradients.
  static absl::StatusOr<std::unique_ptr<ConservedSum>> Start(const std::string& target,
                                                             const std::string& table,
                                                             uint64_t seed, const Clock* clock);
  ~ConservedSum();  // stops

  uint64_t pushes() const { return pushes_.load(); }

  // Ends the pushing, reads every row back and compares. DataLoss names the first weight that is
  // wrong.
  absl::StatusOr<Report> StopAndCheck();

 private:
  ConservedSum(std::unique_ptr<Client> client, const Table* table, uint64_t seed,
               const Clock* clock);
  void PushUntilStopped();
  absl::Status PushOne(uint64_t step);

  const std::unique_ptr<Client> client_;
  const Table* const table_;
  const uint64_t seed_;
  const Clock* const clock_;
  std::atomic<bool> stop_{false};     // after the push in progress
  std::atomic<bool> abandon_{false};  // even if its outcome is not known
  std::atomic<uint64_t> pushes_{0};
  // Of the pushing thread until it has ended.
  absl::Status status_;
  std::vector<int32_t> sums_;  // rows x dim
  uint64_t rows_ = 0;
  int64_t longest_ns_ = 0;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CONSERVED_SUM_H_
