// The pushes of a client that shards have not answered yet: their tickets, their Futures, and the
// results that nobody has claimed. Thread-compatible: the engine's mutex guards it.
//
// A push may outlive its Future: at its deadline the Future gets kIndeterminate, while the push
// stays until all its shards have answered. Retry gives it a Future again.
#ifndef HOTBED_CLIENT_PUSH_PUSH_LEDGER_H_
#define HOTBED_CLIENT_PUSH_PUSH_LEDGER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/map/table_handle.h"
#include "client/push/push_call.h"
#include "client/push/push_window.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

class PushLedger {
 public:
  // Promises to keep once the engine's mutex is free.
  using Resolutions = std::vector<std::pair<Promise<PushResult>, PushResult>>;
  static void Resolve(Resolutions resolutions);

  PushLedger(uint64_t pushes_max, uint64_t bytes_max) : window_(pushes_max, bytes_max) {}

  // How many pushes are open, and how many more may be.
  const PushWindow& window() const { return window_; }
  // InvalidArgument if the steps of one of the call's tables would not grow.
  absl::Status CheckSteps(const PushCall& call) const;
  // Gives the call a ticket and a Future; `driver` is that of the Future.
  Future<PushResult> Add(std::unique_ptr<PushCall> call, std::shared_ptr<WaitDriver> driver,
                         int64_t now_ns);
  // A shard has answered `part` for good. True: it was the last part of its call, which is deleted.
  bool Finish(PushPart* part, const absl::Status& status, const Clock& clock,
              Resolutions* resolutions);
  // Resolves, with kIndeterminate, the Futures whose deadline is at `now_ns` or earlier.
  void Expire(int64_t now_ns, Resolutions* resolutions);

  // As Client::Retry, for a result of this client.
  Future<PushResult> Retry(const PushResult& result, int64_t deadline_ns,
                           std::shared_ptr<WaitDriver> driver);
  // True if no push of `step` or an earlier step is open.
  bool AllAnswered(uint64_t step) const;
  // The results, as of now, of the open pushes that began at `begun_by_ns` or earlier; by ticket.
  std::vector<PushResult> Unanswered(int64_t begun_by_ns) const;

 private:
  absl::flat_hash_map<uint64_t, std::unique_ptr<PushCall>> calls_;  // by ticket
  PushWindow window_;                                               // of calls_
  absl::flat_hash_map<const TableHandle*, uint64_t> last_step_;
  // Results of pushes without a Future, for Retry; the oldest are dropped first.
  std::deque<PushResult> unclaimed_;
  uint64_t next_ticket_ = 1;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PUSH_PUSH_LEDGER_H_
