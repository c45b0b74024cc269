// Answers the calls of the output layer (proto/softmax.proto).
//
// Threads of its own compute, one shard at a time each; the shards of a call are shared out among
// them, and calls come one after another. What shards add to an answer is summed in the order of
// the shards, so that the answer does not depend on the threads. A call ends at its deadline. Its
// memory counts as that of pulls in flight. Thread-safe.
#ifndef HOTBED_SERVER_OUTPUT_SOFTMAX_CALLS_H_
#define HOTBED_SERVER_OUTPUT_SOFTMAX_CALLS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/softmax.pb.h"
#include "proto/tool_calls.h"
#include "server/host/shard_host.h"
#include "server/net/byte_budget.h"
#include "server/output/softmax_input.h"

namespace hotbed {

constexpr size_t kSoftmaxCallsMax = 64;  // that wait

class SoftmaxCalls {
 public:
  // Half of the cores.
  static int Threads();
  // `host` and `clock` outlive it.
  SoftmaxCalls(ShardHost* host, const Clock* clock, int threads = Threads());
  ~SoftmaxCalls() { Stop(); }

  // The budget that calls take their memory from; before this, it is not counted. It outlives all
  // calls.
  void SetMemory(ByteBudget* memory) { memory_.store(memory); }
  // Does not block. ResourceExhausted: too many calls wait.
  void Call(SoftmaxInput::What what, const v1::SoftmaxRequest& request,
            const ToolCalls::MayUse& may_use, ToolCalls::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // The same, waiting for the answer.
  absl::StatusOr<v1::SoftmaxReply> Answer(SoftmaxInput::What what,
                                          const v1::SoftmaxRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Calls in progress are answered.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // What a request to Softmax and to SoftmaxGradient asks for.
  static SoftmaxInput::What WhatOf(bool gradient, const v1::SoftmaxRequest& request);

 private:
  struct Running;

  // Checks the call and reads its input; the first shard of the table is needed for that.
  absl::StatusOr<std::shared_ptr<Running>> Begin(SoftmaxInput::What what,
                                                 const v1::SoftmaxRequest& request,
                                                 const ToolCalls::MayUse& may_use);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Computes shards of the call while there are some that nobody computes.
  void WorkOn(Running* call) ABSL_LOCKS_EXCLUDED(mu_);
  static absl::Status AwaitMemory(ByteBudget* memory, const Running& call);

  ShardHost* const host_;
  const Clock* const clock_;
  std::atomic<ByteBudget*> memory_{nullptr};
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::shared_ptr<Running>> calls_ ABSL_GUARDED_BY(mu_);  // with shards left to begin
  std::vector<std::thread> threads_;
};

// The methods on the data port.
std::map<std::string, ToolCalls::SlowCall> OutputCalls(SoftmaxCalls* softmax);

}  // namespace hotbed

#endif  // HOTBED_SERVER_OUTPUT_SOFTMAX_CALLS_H_
