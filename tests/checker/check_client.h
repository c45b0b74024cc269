// One client of the kill checker: pushes its workload under its journal, survives kill -9 at any
// point, and reads its own writes on the way. Thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_
#define HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/checker/journal.h"
#include "tests/checker/workload.h"

namespace hotbed::checker {

class CheckClient {
 public:
  // Connects under the session name of `client`, opens the tables and the journal.
  static absl::StatusOr<std::unique_ptr<CheckClient>> Open(const std::string& target,
                                                           const std::string& journal_dir,
                                                           const Workload* workload,
                                                           uint32_t client);

  // Sends every step that the journal holds without a result, until each is applied.
  absl::Status Resolve();
  // Pushes new steps, several in flight, until `stop` says so; all are applied when it returns OK.
  // DataLoss: what was read contradicts what was acknowledged.
  absl::Status Work(const std::function<bool()>& stop);

  const Journal& journal() const { return *journal_; }
  Client* client() { return client_.get(); }
  const Table* table(uint32_t t) const { return tables_[t]; }

 private:
  struct Flight {
    uint64_t step = 0;
    StepBatch batch;
    Future<PushResult> result;
  };

  CheckClient(const Workload* workload, uint32_t client)
      : workload_(workload), number_(client), random_(workload->options().seed + client) {}
  void Send(uint64_t step);
  absl::Status FinishOldest();
  absl::Status FinishAll();
  absl::Status CheckReads();
  absl::Status CheckRow(uint32_t table, uint64_t row, const float* weights) const;

  const Workload* workload_;
  const uint32_t number_;
  Random random_;
  std::unique_ptr<Client> client_;
  std::array<const Table*, kTables> tables_{};
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Ledger> ledger_;  // of this client's applied steps
  std::deque<std::unique_ptr<Flight>> flights_;
};

// Creates the tables of the workload.
absl::Status CreateTables(const std::string& target, const Workload& workload);

// Resolves every client's journal, reads both tables and compares every weight. OK: exact.
// DataLoss: the differences, the first few explained. `report` takes lines for a person.
absl::Status Verify(const std::string& target, const std::string& journal_dir,
                    const Workload& workload,
                    const std::function<void(const std::string&)>& report);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_
