// Answers clients that look for the rows nearest to a vector (proto/top_k.proto), shard by shard.
//
// Threads of its own read the rows (RowSearch), one call each at a time; other calls wait in a
// queue. A call ends at its deadline, wherever it is then. The memory of an answer counts against
// ChangeMemory until the answer has left. Thread-safe.
#ifndef HOTBED_SERVER_EXPORT_TOP_K_CALLS_H_
#define HOTBED_SERVER_EXPORT_TOP_K_CALLS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/tool_calls.h"
#include "proto/top_k.pb.h"
#include "server/host/shard_host.h"
#include "server/shard/change_feed.h"

namespace hotbed {

constexpr size_t kTopKCallsMax = 64;       // that wait
constexpr uint32_t kTopKRowsMax = 16'384;  // of an answer
constexpr uint32_t kTopKTimeoutMsMax = 600'000;

// Answers one call on this thread. `go_on` is asked often; its error ends the call.
//   InvalidArgument  names field, value and limit
//   Aborted          the shard has left this server meanwhile: look at the map again
absl::StatusOr<v1::TopKReply> AnswerTopK(const ShardHost& host, const v1::TopKRequest& request,
                                         absl::FunctionRef<absl::Status()> go_on);

class TopKCalls {
 public:
  // A quarter of the cores.
  static int Threads();
  // `host` and `clock` outlive it.
  TopKCalls(const ShardHost* host, std::shared_ptr<ChangeMemory> memory, const Clock* clock,
            int threads = Threads());
  ~TopKCalls() { Stop(); }

  // ResourceExhausted: too many calls wait. DeadlineExceeded. Does not block.
  void TopK(const v1::TopKRequest& request, ToolCalls::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    v1::TopKRequest request;
    ToolCalls::Done done;
    int64_t begin_ns = 0;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(const Waiting& call) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the call may still be answered.
  absl::Status GoOn(const Waiting& call) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitMemory(const Waiting& call, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const ShardHost* const host_;
  const std::shared_ptr<ChangeMemory> memory_;
  const Clock* const clock_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_TOP_K_CALLS_H_
