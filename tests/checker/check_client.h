// One client of the checker: pushes its workload and keeps a journal of it, survives kill -9 at any
// point, and checks the rows that it pulls meanwhile. Thread-compatible.
#ifndef HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_
#define HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/checker/counts.h"
#include "tests/checker/journal.h"
#include "tests/checker/read_check.h"
#include "tests/checker/slow_calls.h"
#include "tests/checker/workload.h"

namespace hotbed::checker {

struct CheckClientOptions {
  std::string target;  // hotbed://HOST:PORT
  std::string journal_dir;
  uint32_t client = 0;
  size_t flights_max = 4;  // steps in flight
  // Calls that take longer leave lines in client-N.slow (slow_calls.h); zero: no call does.
  absl::Duration slow_after = absl::ZeroDuration();
};

class CheckClient {
 public:
  // Connects under the session name of the client, opens the tables and the journal.
  static absl::StatusOr<std::unique_ptr<CheckClient>> Open(const CheckClientOptions& options,
                                                           const Workload* workload);

  // Sends every step that has no result in the journal, until each is applied.
  absl::Status Resolve();
  // Pushes new steps, several in flight, until `stop` returns true; all are applied when this
  // returns OK. DataLoss: a pulled row contradicts the acknowledged pushes.
  absl::Status Work(const std::function<bool()>& stop);

  const Journal& journal() const { return *journal_; }
  Client* client() { return client_.get(); }
  const Table* table(uint32_t t) const { return tables_[t]; }

 private:
  struct Flight {
    uint64_t step = 0;
    int64_t sent_ns = 0;
    StepBatch batch;
    Future<PushResult> result;
    // When the push was answered, perhaps long before FinishOldest; 0: not yet. Shared with the
    // callback that sets it.
    std::shared_ptr<std::atomic<int64_t>> answered_ns = std::make_shared<std::atomic<int64_t>>(0);
  };

  CheckClient(const CheckClientOptions& options, const Workload* workload);
  void RestoreFromJournal();
  absl::Status Begin(uint64_t step);
  void Send(uint64_t step);
  absl::Status FinishOldest();
  static void NoteAnswer(const Flight& flight);
  absl::Status FinishAll();
  absl::Status Read(bool drained);
  absl::Status Pull(absl::Span<const PullFeature> features);
  void NoteStats();

  const CheckClientOptions options_;
  const Workload* workload_;
  Random random_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<SlowCalls> slow_;  // of client_
  std::vector<const Table*> tables_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Ledger> ledger_;  // this client's applied steps
  std::unique_ptr<Counts> counts_;
  std::unique_ptr<ReadCheck> reads_;
  std::deque<std::unique_ptr<Flight>> flights_;
  ClientStats noted_;
};

// Creates the tables of the workload.
absl::Status CreateTables(const std::string& target, const Workload& workload);

// Resolves every client's journal, reads all tables and compares every weight. OK: all are exact.
// DataLoss lists the differences and explains the first few. `report` takes lines for a person.
absl::Status Verify(const std::string& target, const std::string& journal_dir,
                    const Workload& workload,
                    const std::function<void(const std::string&)>& report);

// As Verify, for the tables of more than one replica only. No journal has an open step: Verify ran
// before, and a server was removed since.
absl::Status VerifyReplicas(const std::string& target, const std::string& journal_dir,
                            const Workload& workload,
                            const std::function<void(const std::string&)>& report);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_CHECK_CLIENT_H_
